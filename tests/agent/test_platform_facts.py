# SPDX-License-Identifier: Apache-2.0
"""Facts of a distribution, as the agent reads them: its own names, UEFI builds, mounts of huge pages."""

import gzip
import json
from pathlib import Path

import pytest

from tests.agent import machine
from tests.agent.captures import captured, replayed
from tests.agent.test_facts import read
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.facts import GuestFirmware


def descriptor(path: str, *features: str, machine: str = "pc-q35-*", **mapping: object) -> str:
    """One UEFI build's descriptor (QEMU docs/interop/firmware.json)."""
    flash = {"device": "flash", "executable": {"filename": path}, "nvram-template": {"filename": "/v"}, **mapping}
    targets = [{"architecture": "x86_64", "machines": [machine]}]
    return json.dumps({"interface-types": ["uefi"], "mapping": flash, "targets": targets, "features": features})


def test_uefi_builds_are_those_that_libvirt_can_choose(tmp_path: Path) -> None:
    usr, etc, code = "/usr/share/qemu/firmware", "/etc/qemu/firmware", "/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd"
    tree = {
        code: "",
        "/v": "v" * 540_672,
        f"{usr}/30-enrolled.json": descriptor(code, "enrolled-keys", "requires-smm", "secure-boot"),
        f"{usr}/40-sb.json": descriptor(code, "requires-smm", "secure-boot"),
        f"{usr}/50-hidden.json": descriptor(code),
        f"{etc}/50-hidden.json": "",
        f"{usr}/60-old-machine.json": descriptor(code, machine="pc-i440fx-*"),
        f"{usr}/70-no-file.json": descriptor("/nowhere"),
        f"{usr}/80-damaged.json": '{"interface-types": ["uefi"], "mapping": 7',
        f"{usr}/81-other.json": '["uefi"]',
        f"{usr}/90-amd-sev.json": descriptor(code, "amd-sev", **{"device": "memory"}),
        f"{usr}/notes.txt": "",
    }
    builds = read(tmp_path, tree).guest_firmwares
    assert builds == (
        GuestFirmware("30-enrolled.json", ("enrolled-keys", "requires-smm", "secure-boot"), code, "raw", 540_672),
        GuestFirmware("40-sb.json", ("requires-smm", "secure-boot"), code, "raw", 540_672),
    )


@pytest.mark.parametrize(
    ("release", "ids"),
    [
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', ("rocky", "rhel", "centos", "fedora")),
        ('NAME="SLES"\nID="sles"\nID_LIKE="suse"\nBROKEN="\n', ("sles", "suse")),
        ("ID=debian\n", ("debian",)),
    ],
)
def test_the_distribution_is_os_releases_own_names(release: str, ids: tuple[str, ...], tmp_path: Path) -> None:
    assert read(tmp_path, {"/etc/os-release": release}).distribution == ids


OPTIONS = "CONFIG_SECRET=y\nCONFIG_VFIO=m\n# CONFIG_KVM_XEN is not set\n"
RELEASE = "6.1.0-28-amd64"


@pytest.mark.parametrize(
    ("files", "known"),
    [
        ({f"boot/config-{RELEASE}": f"{OPTIONS}CONFIG_IOMMUFD_DRIVER=y\n"}, True),
        ({f"boot/config-{RELEASE}": f"{OPTIONS}# CONFIG_IOMMUFD_DRIVER is not set\n"}, False),
        ({f"boot/config-{RELEASE}": OPTIONS}, False),
        ({f"lib/modules/{RELEASE}/config": f"{OPTIONS}CONFIG_IOMMUFD_DRIVER=y\n"}, True),
        ({f"boot/config-{RELEASE}": "", f"lib/modules/{RELEASE}/config": OPTIONS}, False),
        ({"boot/config-6.12": OPTIONS}, None),
        ({"proc/config.gz": f"{OPTIONS}CONFIG_IOMMUFD_DRIVER=y\n"}, True),
        ({"proc/config.gz": OPTIONS}, False),
        ({}, None),
    ],
)
def test_the_kernels_configuration_tells_whether_it_logs_dma(
    files: dict[str, str], known: bool | None, tmp_path: Path
) -> None:
    root = machine.build(tmp_path / "root", machine.BASE, {"/etc/machine-id": ""})
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(gzip.compress(text.encode()) if path.endswith(".gz") else text.encode())
    facts = read_facts(Host(str(root)))
    assert (facts.iommufd_driver, facts.why_unread("iommufd_driver")) == (known, None)
    capture, _ = captured(Host(str(root)))
    assert "SECRET" not in json.dumps(capture.machine)
    assert read_facts(replayed(capture, tmp_path / "replay")).iommufd_driver is known


def test_a_damaged_configuration_says_nothing(tmp_path: Path) -> None:
    root = machine.build(tmp_path / "root", machine.BASE)
    packed = gzip.compress(OPTIONS.encode())
    (root / "proc/config.gz").write_bytes(packed[:12] + b"\xff" * 20)
    assert read_facts(Host(str(root))).iommufd_driver is None


@pytest.mark.parametrize("text", [None, "", "uninitialized\n"])
def test_a_machine_without_an_id_has_none(text: str | None, tmp_path: Path) -> None:
    assert read(tmp_path, {} if text is None else {"/etc/machine-id": text}).machine_id is None


def test_the_machine_id_leaves_the_machine_as_a_digest_alone(tmp_path: Path) -> None:
    own = "0123456789abcdef0123456789abcdef"
    digests = [read(tmp_path / name, {"/etc/machine-id": f"{own}\n"}).machine_id for name in ("a", "b")]
    assert digests[0] == digests[1] != own
    assert digests[0] is not None and len(digests[0]) == 32


@pytest.mark.parametrize(
    ("mounts", "is_mounted"),
    [
        ("hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n", False),
        ("hugetlbfs /dev/hugepages hugetlbfs rw,relatime 0 0\n", False),
        ("x /dev/hugepages1G hugetlbfs rw,relatime,pagesize=1024M 0 0\n", True),
        ("x /dev/hugepages1G hugetlbfs rw,pagesize=1G 0 0\n", True),
        ("", False),
    ],
)
def test_a_pool_says_whether_a_hugetlbfs_of_its_size_is_mounted(mounts: str, is_mounted: bool, tmp_path: Path) -> None:
    folder = "/sys/kernel/mm/hugepages/hugepages-1048576kB"
    pages = {f"{folder}/nr_hugepages": "8", f"{folder}/free_hugepages": "8"}
    (pool,) = read(tmp_path, pages, {"/proc/mounts": mounts}).hugepages or ()
    assert pool.is_mounted is is_mounted
