# SPDX-License-Identifier: Apache-2.0
"""Each prerequisite is found where it is missing, with the distribution's own fix; none on a ready host."""

import shlex
from dataclasses import replace
from typing import Any

import pytest

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.model.layout import FabricLayout, FabricMode, GpuLayout, GpuMatch, HostLayout, NetworkLayout, VgpuLayout
from vgpuctl.model.preparation import Preparation, ProbedCard, PythonThere
from vgpuctl.planner.doctor import Finding, Severity
from vgpuctl.planner.doctor.prerequisites import FailedAttempt, Newcomer
from vgpuctl.planner.doctor.prerequisites_table import PREREQUISITES, look_for_missing

A40 = ProbedCard("0000:41:00.0", "10de", "2235", "10de:145a", "nvidia", 32, is_vgpu_host=True)
READY = Preparation(
    distribution=("debian",),
    release="debian 12",
    operating_system="Debian GNU/Linux 12 (bookworm)",
    kernel="6.1.0-28-amd64",
    machine="x86_64",
    command_line="intel_iommu=on iommu=pt",
    user_id=1000,
    pythons=(PythonThere("/usr/bin/python3", (3, 11)),),
    programs=frozenset(
        (
            "sudo",
            "libvirtd",
            "virt-ssh-helper",
            "qemu-system-x86_64",
            "ovs-vsctl",
            "ovn-controller",
            "swtpm",
            "swtpm_setup",
        )
    ),
    modules=frozenset({"vfio-pci", "openvswitch", "geneve"}),
    has_modules_list=True,
    sockets=frozenset({"libvirt-sock", "virtlogd-sock"}),
    units=frozenset({"libvirtd.socket"}),
    cpu_virtualisation="vmx",
    has_kvm=True,
    has_iommu=True,
    cards=(A40,),
    nvidia_driver="580.65.06",
    firmware_builds=("60-edk2-x86_64.json",),
)
EL, SUSE = ("rocky", "rhel", "centos", "fedora"), ("sles", "suse")
LAYOUT = HostLayout(
    (GpuLayout(GpuMatch(), VgpuLayout()),),
    network=NetworkLayout(("tcp:192.0.2.1:6642",), "192.0.2.0/24", "gpu1"),
)
HOST = Newcomer(READY, LAYOUT, user="operator", becomes=True)
NO_PYTHON = {"agent": FailedAttempt("gpu1: /usr/bin/python3 was not found"), "lacks_python": True}
H100 = ProbedCard("0000:41:00.0", "10de", "2330", "10de:16c1", "nvidia", 16, is_vgpu_host=True)
FABRIC = HostLayout(fabric=FabricLayout(FabricMode.SHARED))
BLOCKED = replace(A40, has_unassigned_memory=True)


def without(**changes: Any) -> Newcomer:
    """The ready host with something else there."""
    outer = {key: changes.pop(key) for key in list(changes) if key in Newcomer.__dataclass_fields__}
    return replace(HOST, there=replace(READY, **changes), **outer)


def found(check: str, host: Newcomer) -> list[Finding]:
    return [one for one in look_for_missing(host) if one.check == check]


CASES: list[tuple[str, Newcomer, str]] = [
    ("machine", without(machine="aarch64"), "x86_64"),
    ("distribution", without(distribution=("void",)), "each family"),
    ("sudo", without(becomes=False), "ansible_become: true"),
    ("sudo", without(programs=READY.programs - {"sudo"}, distribution=SUSE), "zypper --non-interactive install sudo"),
    ("sudo", without(sudo=FailedAttempt("gpu1: sudo did not let operator become root")), "/etc/sudoers.d/vgpuctl"),
    ("python", without(**NO_PYTHON, pythons=()), "apt-get install -y python3"),
    ("python", without(**NO_PYTHON, pythons=(), distribution=EL), "dnf install -y python3.11"),
    (
        "python",
        without(**NO_PYTHON, pythons=(PythonThere("/usr/bin/python3", (3, 6)),), distribution=SUSE),
        "python311",
    ),
    ("python", without(**NO_PYTHON), "ansible_python_interpreter: /usr/bin/python3"),
    (
        "agent",
        without(agent=FailedAttempt("gpu1: the agent does not speak its protocol", "see its shell")),
        "see its shell",
    ),
    ("kvm", without(has_kvm=False), "modprobe kvm_intel"),
    ("kvm", without(has_kvm=False, cpu_virtualisation=""), "in the firmware"),
    ("iommu-off", without(has_iommu=False), "VT-d"),
    ("iommu-off", without(has_iommu=False, command_line=""), "GRUB_CMDLINE_LINUX"),
    (
        "iommu-off",
        without(has_iommu=False, command_line="", cpu_virtualisation="svm", distribution=EL),
        "grubby --update-kernel=ALL --args=iommu=pt",
    ),
    (
        "kernel-arguments",
        without(layout=HostLayout(kernel_arguments=("default_hugepagesz=1G",)), distribution=SUSE),
        "grub2-mkconfig -o /boot/grub2/grub.cfg",
    ),
    ("vfio-module", without(modules=frozenset()), "linux-modules-extra"),
    ("gpus", without(cards=()), "Above 4G"),
    ("sriov-resources", without(cards=(replace(A40, total_vfs=0),)), "enable SR-IOV"),
    ("sriov-resources", without(cards=(BLOCKED,)), "Above 4G"),
    ("foreign-driver", without(cards=(replace(A40, driver="nouveau"),)), "update-initramfs -u"),
    ("foreign-driver", without(cards=(replace(A40, driver="nouveau"),), distribution=EL), "dracut --force"),
    ("driver-without-vgpu", without(nvidia_driver=None, cards=(replace(A40, driver=None),)), "vgpu-kvm"),
    ("driver-without-vgpu", without(cards=(replace(A40, is_vgpu_host=False),)), "vGPU Manager"),
    ("driver-without-vgpu", without(processes=frozenset({"nvidia-gridd"})), "vGPU Manager"),
    (
        "fabric-manager",
        without(cards=(H100,)),
        "nvidia-fabricmanager-580 nvidia-fabricmanager-dev-580 of version 580.65.06",
    ),
    ("fabric-manager", without(cards=(H100,), nvidia_driver=None, layout=FABRIC), "nvidia-fabricmanager-dev-BRANCH"),
    (
        "fabric-manager",
        without(cards=(H100,), distribution=EL),
        "dnf install -y nvidia-fabricmanager-580.65.06 nvidia-fabric-manager-devel-580.65.06",
    ),
    (
        "fabric-manager",
        without(cards=(H100,), layout=FABRIC, programs=READY.programs | {"nv-fabricmanager"}),
        "nvidia-fabricmanager-dev-580",
    ),
    ("secure-boot", without(has_secure_boot=True, nvidia_driver=None), "mokutil"),
    ("qemu", without(programs=READY.programs - {"qemu-system-x86_64"}), "apt-get install -y qemu-system-x86"),
    ("libvirt", without(programs=READY.programs - {"libvirtd"}, distribution=EL), "dnf install -y libvirt"),
    ("libvirt-daemons", without(sockets=frozenset()), "systemctl enable --now libvirtd.socket virtlogd.socket"),
    (
        "libvirt-daemons",
        without(sockets=frozenset({"virtqemud-sock"}), units=frozenset({"virtqemud.socket"})),
        "enable --now virtstoraged.socket virtnetworkd.socket virtnwfilterd.socket virtlogd.socket",
    ),
    ("libvirt-daemons", without(sockets=frozenset({"libvirt-sock"}), networks={}), "enable --now virtlogd.socket"),
    ("libvirt-network", without(networks={}), "net-define"),
    ("libvirt-network", without(networks={"default": False}), "net-start default"),
    ("guest-firmware", without(firmware_builds=(), distribution=SUSE), "qemu-ovmf-x86_64"),
    ("guest-tpm", without(programs=READY.programs - {"swtpm_setup"}), "apt-get install -y swtpm swtpm-tools"),
    ("hugepages-mount", without(pages=((1 << 20, 8),)), "pagesize=1G"),
    ("hugepages-mount", without(layout=HostLayout(hugepages=((1 << 20, 8),))), "/dev/hugepages1G"),
    ("ovn", without(programs=READY.programs - {"ovn-controller"}), "openvswitch-switch ovn-host"),
    ("ovn", without(modules=frozenset({"vfio-pci", "openvswitch"})), "package of modules"),
    ("firewall", without(firewalls=("firewalld",)), "firewall-cmd --permanent --add-port=6081/udp"),
    ("firewall", without(firewalls=("ufw",)), "ufw allow from 192.0.2.0/24 to any port 6081 proto udp"),
    ("proxmox", without(is_proxmox=True), "a separate host"),
]


@pytest.mark.parametrize(("check", "host", "fix"), CASES, ids=[f"{one[0]}-{n}" for n, one in enumerate(CASES)])
def test_what_is_missing_is_told_with_its_fix(check: str, host: Newcomer, fix: str) -> None:
    findings = found(check, host)
    assert findings and all(one.read and one.fix for one in findings)
    assert any(fix in one.fix for one in findings), findings


@pytest.mark.parametrize(
    ("release", "packages"),
    [("debian 12", "qemu-system-x86"), ("debian 13", "qemu-system-x86 qemu-system-modules-spice")],
)
def test_a_package_that_one_release_has_apart_is_named_there_alone(release: str, packages: str) -> None:
    (finding,) = found("qemu", without(programs=READY.programs - {"qemu-system-x86_64"}, release=release))
    assert finding.command == f"apt-get install -y {packages}"


def test_nothing_is_missing_on_a_ready_host() -> None:
    assert look_for_missing(HOST) == ()
    assert look_for_missing(replace(HOST, networks={"default": True})) == ()


def test_fabric_manager_is_asked_for_where_it_is_needed_alone() -> None:
    installed = READY.programs | {"nv-fabricmanager"}
    cards = (H100,)
    for fine in (
        without(cards=cards, programs=installed),
        without(cards=cards, programs=installed, layout=HostLayout(fabric=FabricLayout(FabricMode.BARE))),
        without(cards=cards, programs=installed, has_fabric_sdk=True, layout=FABRIC),
        without(cards=(replace(H100, driver="vfio-pci"),)),
        without(layout=FABRIC),
    ):
        assert not found("fabric-manager", fine)
    (declared,), (seen,) = (
        found("fabric-manager", without(cards=cards, layout=FABRIC)),
        found("fabric-manager", without(cards=cards)),
    )
    assert (declared.severity, seen.severity) == (Severity.ERROR, Severity.WARNING)


def test_every_prerequisite_has_a_case_and_is_no_worse_than_it_says() -> None:
    assert {one.id for one in PREREQUISITES} == {check for check, *_ in CASES}
    order = list(Severity)
    for one in PREREQUISITES:
        told = [finding for _, host, _ in CASES for finding in one.find(host)]
        assert {finding.check for finding in told} == {one.id}
        assert min((finding.severity for finding in told), key=order.index) is one.worst, one.id


def test_a_host_without_ovn_in_its_layout_needs_no_port_and_no_ovn() -> None:
    host = without(programs=READY.programs - {"ovs-vsctl"}, firewalls=("firewalld",), layout=HostLayout())
    assert not found("ovn", host) and not found("firewall", host)


def test_commands_are_lines_for_a_shell_and_only_where_the_family_is_known() -> None:
    for _, host, _ in CASES:
        for one in look_for_missing(host):
            assert one.command is None or "\n" not in one.command
        nowhere = replace(host, there=replace(host.there, distribution=("void",)))
        for one in look_for_missing(nowhere):
            assert one.command is None or not one.command.startswith("install"), one


def test_where_both_find_the_same_the_one_with_a_command_is_told_once() -> None:
    told_by_agent = (
        Finding(CheckId.IOMMU_OFF, Severity.ERROR, "host", "/sys/class/iommu is empty", "add intel_iommu=on"),
        Finding(CheckId.GUEST_FIRMWARE, Severity.WARNING, "host", "no build without keys", "install it"),
        Finding(CheckId.STOP_RACE, Severity.NOTE, "host", "a line", "wait"),
    )
    findings = look_for_missing(without(has_iommu=False, command_line=""), told_by_agent)
    assert [one.check for one in findings] == ["iommu-off", "guest-firmware", "stop-race"]
    assert findings[0].command is not None


def test_text_of_the_inventory_stays_one_word_of_the_command() -> None:
    layout = HostLayout(kernel_arguments=("a=$(reboot)", "b='|;reboot;'"))
    for distribution in (EL, SUSE, ("debian",)):
        (finding,) = found("kernel-arguments", without(layout=layout, distribution=distribution))
        words = shlex.split(finding.command or "", comments=True)
        assert "reboot" not in words and not any(word.startswith(";") for word in words)
