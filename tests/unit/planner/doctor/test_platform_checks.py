# SPDX-License-Identifier: Apache-2.0
"""Checks of the distribution's parts, each provoked, with the fix in the distribution's own form."""

from dataclasses import replace

import pytest

from tests.unit.planner.doctor.test_checks import a40, seen
from vgpuctl.agent.wire.cdi import FILE, CdiFacts
from vgpuctl.agent.wire.facts import GuestFirmware
from vgpuctl.agent.wire.memory import HugepageFacts
from vgpuctl.model.layout import HostLayout
from vgpuctl.planner.doctor import Examined, Severity, examine

PLAIN = GuestFirmware("60-edk2.json", ("acpi-s3",))
NO_KEYS = GuestFirmware("40-sb.json", ("requires-smm", "secure-boot"))
ENROLLED = GuestFirmware("30-sb-enrolled.json", ("enrolled-keys", "requires-smm", "secure-boot"))
SUSE, ROCKY = ("sles", "suse"), ("rocky", "rhel", "centos", "fedora")
UNMOUNTED = HugepageFacts(1 << 20, 8, 8, is_mounted=False)


def with_builds(*builds: GuestFirmware, ids: tuple[str, ...] = ("debian",)) -> Examined:
    return seen(a40(), facts={"guest_firmwares": builds, "distribution": ids})


def declaring(page_kib: int, count: int) -> Examined:
    found = seen(a40(), facts={"hugepages": (replace(UNMOUNTED, total=0, free=0),)})
    assert found.layout is not None
    return replace(found, layout=HostLayout(found.layout.gpus, hugepages=((page_kib, count),)))


def with_nodes(missing: tuple[str, ...], *, has_modprobe: bool = True) -> Examined:
    """A GPU for containers, of whose driver some nodes are missing."""
    found = CdiFacts((a40().address,), missing_nodes=missing, has_modprobe=has_modprobe)
    return seen(a40(), facts={"cdi": found, "distribution": ("debian",)})


@pytest.mark.parametrize(
    ("check", "found", "fix"),
    [
        ("guest-firmware", with_builds(), "apt-get install -y ovmf"),
        ("guest-firmware", with_builds(ENROLLED, ids=ROCKY), "dnf install -y edk2-ovmf"),
        ("guest-firmware", with_builds(ids=SUSE), "zypper --non-interactive install qemu-ovmf-x86_64"),
        ("guest-firmware", with_builds(ids=("void",)), "ovmf (Debian, Ubuntu), or edk2-ovmf"),
        ("guest-secure-boot", with_builds(PLAIN), "apt-get install -y ovmf"),
        ("guest-secure-boot", with_builds(NO_KEYS, ids=ROCKY), "dnf install -y edk2-ovmf"),
        ("guest-tpm", seen(a40(), facts={"tpm_programs": ("swtpm",)}), "swtpm swtpm-tools"),
        ("hugepages-mount", seen(a40(), facts={"hugepages": (UNMOUNTED,)}), "mount -t hugetlbfs -o pagesize=1G"),
        ("hugepages-mount", declaring(1 << 20, 8), "/dev/hugepages1G"),
        ("guests-at-shutdown", seen(a40(), guests_at_shutdown="suspend"), "ON_SHUTDOWN=shutdown"),
        ("proxmox", seen(a40(), is_proxmox=True), "pve-nvidia-sriov@"),
        ("container-gpus", replace(seen(a40(), facts={"cdi": CdiFacts((a40().address,))}), layout=None), "apply-hosts"),
        ("container-gpus", seen(a40(), facts={"cdi": CdiFacts(unknown="EIO")}), "remove it and /etc/vgpuctl/cdi.json"),
        ("container-gpus", seen(a40(), facts={"cdi": CdiFacts(others=(FILE,))}), "was taken off the host"),
        ("container-gpus", with_nodes(("/dev/nvidia-uvm",), has_modprobe=False), "apt-get install -y nvidia-modprobe"),
        ("container-gpus", with_nodes(("/dev/nvidiactl", "/dev/nvidia-uvm")), "run `nvidia-modprobe -u -c 0` there"),
    ],
)
def test_it_is_found_with_its_fix(check: str, found: Examined, fix: str) -> None:
    (finding,) = [one for one in examine(found) if one.check == check]
    assert fix in finding.fix


@pytest.mark.parametrize(
    "found",
    [
        with_builds(ENROLLED, PLAIN),
        with_builds(ENROLLED, NO_KEYS),
        seen(a40(), facts={"tpm_programs": ("swtpm", "swtpm_setup")}),
        seen(a40(), facts={"tpm_programs": None}),
        seen(a40(), facts={"hugepages": (replace(UNMOUNTED, is_mounted=True),)}),
        seen(a40(), facts={"hugepages": (replace(UNMOUNTED, is_mounted=None),)}),
        seen(a40(), facts={"hugepages": (replace(UNMOUNTED, total=0, free=0),)}),
        seen(a40(), guests_at_shutdown="shutdown"),
        seen(a40(), facts={"cdi": CdiFacts((a40().address,), others=("/run/cdi/nvidia.yaml",))}),
        replace(seen(a40(), facts={"cdi": CdiFacts()}), layout=None),
        with_nodes(()),
    ],
)
def test_a_host_that_has_it_is_healthy(found: Examined) -> None:
    ours = {"guest-firmware", "guest-secure-boot", "guest-tpm", "hugepages-mount", "guests-at-shutdown", "proxmox"}
    ours |= {"container-gpus"}
    assert not ours & {one.check for one in examine(found)}


def test_a_declared_pool_that_libvirt_cannot_give_is_an_error() -> None:
    severities = [one.severity for one in examine(declaring(1 << 20, 8)) if one.check == "hugepages-mount"]
    assert severities == [Severity.ERROR]
