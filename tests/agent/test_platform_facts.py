# SPDX-License-Identifier: Apache-2.0
"""Facts of a distribution, as the agent reads them: its own names, UEFI builds, mounts of huge pages."""

import json
from pathlib import Path

import pytest

from tests.agent.test_facts import read
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
