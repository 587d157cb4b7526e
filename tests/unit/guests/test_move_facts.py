# SPDX-License-Identifier: Apache-2.0
"""What libvirt tells about a move: of a running domain, of a host's processor and machine types, of written memory."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import libvirt
import pytest

from vgpuctl.errors import GuestError
from vgpuctl.guests.facts import move_facts
from vgpuctl.guests.facts.capabilities import Connected
from vgpuctl.planner.moves.case import HostProcessor, MovedDomain
from vgpuctl_lab.simulated.libvirt_host import capabilities

UUID, OWN = "11111111-2222-4333-8444-555555555555", "0000:41:00.4"


def _unsupported(code: int = libvirt.VIR_ERR_NO_SUPPORT) -> libvirt.libvirtError:
    error = libvirt.libvirtError("refused")
    error.err = (code, libvirt.VIR_FROM_QEMU, "refused", 2, None, None, None, 0, 0)
    return error


def _fails(code: int = libvirt.VIR_ERR_NO_SUPPORT) -> Callable[..., Any]:
    def call(*_arguments: object) -> Any:
        raise _unsupported(code)

    return call


def _xml(inside: str = "", *, cpu: str = "<cpu mode='host-passthrough'/>", devices: str = "") -> str:
    return (
        f"<domain type='kvm'><name>web</name><uuid>{UUID}</uuid><os><type machine='pc-q35-9.2'>hvm</type></os>"
        f"{cpu}{inside}<devices>{devices}</devices></domain>"
    )


def _hostdev(function: str, inside: str = "") -> str:
    return (
        f"<hostdev mode='subsystem' type='pci'>{inside}<source>"
        f"<address domain='0x0000' bus='0x41' slot='0x00' function='{function}'/></source></hostdev>"
    )


def _connected(xml: str = "", **domain: Any) -> Connected:
    parts = {
        "state": lambda: (1, 1),
        "XMLDesc": lambda _flags: xml,
        "snapshotNum": lambda: 0,
        "jobInfo": lambda: [0] * 12,
        "blockJobInfo": lambda _disk, _flags: {},
        **domain,
    }
    connection = SimpleNamespace(lookupByUUIDString=lambda _uuid: SimpleNamespace(**parts), **domain)
    return cast(Connected, SimpleNamespace(host="gpu1", connection=connection))


def _read(xml: str, **domain: Any) -> MovedDomain:
    return move_facts.read_moved_domain(_connected(xml, **domain), UUID, own=[OWN])


def test_a_domain_with_its_own_devices_alone_has_nothing_against_a_move() -> None:
    found = _read(_xml(devices=_hostdev("0x4") + "<hostdev mode='subsystem' type='usb'/>"))
    assert found == MovedDomain(
        "pc-q35-9.2", "host-passthrough", None, has_free_invtsc=False, has_viommu=False, has_virtiofs=False,
        snapshots=0, block_jobs=(), job="", unsafe_disks=(), transient_disks=(), other_devices=(),
    )  # fmt: skip


DISK = "<disk type='file' device='disk'>{}<target dev='vda'/></disk>"
AGAINST: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "iommu": (_xml(devices="<iommu model='intel'/>"), {}, {"has_viommu": True}),
    "virtiofs": (_xml(devices="<filesystem><driver type='virtiofs'/></filesystem>"), {}, {"has_virtiofs": True}),
    "9p is none": (_xml(devices="<filesystem><driver type='path'/></filesystem>"), {}, {"has_virtiofs": False}),
    "invtsc": (
        _xml(cpu="<cpu mode='custom'><model>x</model><feature policy='require' name='invtsc'/></cpu>"),
        {},
        {"has_free_invtsc": True, "cpu_mode": "custom"},
    ),
    "a fixed clock": (
        _xml(
            "<clock><timer name='tsc' frequency='2000000000'/></clock>",
            cpu="<cpu mode='host-model'><feature policy='require' name='invtsc'/></cpu>",
        ),
        {},
        {"has_free_invtsc": False, "cpu_mode": "host-model"},
    ),
    "no cpu": (_xml(cpu=""), {}, {"cpu_mode": "default"}),
    "transient": (_xml(devices=DISK.format("<transient/>")), {}, {"transient_disks": ("vda",)}),
    "a block job": (
        _xml(devices=DISK.format("")),
        {"blockJobInfo": lambda _disk, _flags: {"type": 1}},
        {"block_jobs": ("vda",)},
    ),
    "a job": (_xml(), {"jobInfo": lambda: [2] * 12}, {"job": "its job of type 2"}),
    "snapshots": (_xml(), {"snapshotNum": lambda: 3}, {"snapshots": 3}),
    "another card": (_xml(devices=_hostdev("0x5")), {}, {"other_devices": ("0000:41:00.5",)}),
    "scsi": (
        _xml(devices="<hostdev mode='subsystem' type='scsi'/>"),
        {},
        {"other_devices": ("a host device of type scsi",)},
    ),
    "a driver without jobs": (
        _xml(devices=DISK.format("")),
        {"jobInfo": _fails(), "blockJobInfo": _fails(), "snapshotNum": _fails()},
        {"job": "", "block_jobs": (), "snapshots": 0},
    ),
}


@pytest.mark.parametrize("what", AGAINST)
def test_what_a_domain_has_against_a_move_is_read(what: str) -> None:
    xml, domain, wanted = AGAINST[what]
    found = _read(xml, **domain)
    assert {name: getattr(found, name) for name in wanted} == wanted


def test_a_job_that_cannot_be_asked_for_is_never_taken_for_none() -> None:
    with pytest.raises(GuestError):
        _read(_xml(), jobInfo=_fails(libvirt.VIR_ERR_OPERATION_FAILED))


def test_devices_by_iommufd_are_told_from_others() -> None:
    xml = _xml(devices=_hostdev("0x4", "<driver iommufd='yes'/>") + _hostdev("0x5", "<driver name='vfio'/>"))
    assert move_facts.iommufd_devices(xml) == {OWN}


def test_the_processor_and_the_machine_types_of_a_host_are_read() -> None:
    machines, cpu = move_facts.read_host(_connected(getCapabilities=lambda: capabilities("QEMU 8.2.2")))
    assert machines is not None and {"q35", "pc-q35-8.2", "pc-q35-4.0"} <= machines and "pc-q35-9.0" not in machines
    assert cpu is not None and (cpu.vendor, cpu.model, cpu.microcode, cpu.address_bits) == (
        "AMD", "EPYC-Milan", "0xa0011d5", 48,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("xml", "cpu"),
    [
        ("<capabilities/>", None),
        ("<capabilities><host><cpu><model>x</model></cpu></host></capabilities>", None),
        (
            "<capabilities><host><cpu><model>x</model><vendor>y</vendor></cpu></host></capabilities>",
            HostProcessor("y", "x", frozenset()),
        ),
    ],
)
def test_what_capabilities_do_not_tell_is_not_known(xml: str, cpu: HostProcessor | None) -> None:
    assert move_facts.read_host(_connected(getCapabilities=lambda: xml)) == (None, cpu)


def test_a_driver_without_capabilities_tells_nothing() -> None:
    assert move_facts.read_host(_connected(getCapabilities=_fails())) == (None, None)


@pytest.mark.parametrize(
    ("answer", "runs"),
    [
        (libvirt.VIR_CPU_COMPARE_IDENTICAL, True),
        (libvirt.VIR_CPU_COMPARE_SUPERSET, True),
        (libvirt.VIR_CPU_COMPARE_INCOMPATIBLE, False),
        (None, None),
    ],
)
def test_the_other_hosts_libvirt_compares_the_cpu(answer: int | None, runs: bool | None) -> None:
    compare = _fails() if answer is None else lambda *_arguments: answer
    assert move_facts.runs_cpu(_connected(compareHypervisorCPU=compare), _xml()) is runs


@pytest.mark.parametrize(
    ("told", "rate"),
    [
        ({"dirtyrate.calc_status": 2, "dirtyrate.megabytes_per_second": 7}, 7 << 20),
        ({"dirtyrate.calc_status": 2, "dirtyrate.megabytes_per_second": -1}, None),
        ({"dirtyrate.calc_status": 2}, None),
    ],
)
def test_the_rate_at_which_a_guest_writes_its_memory_is_measured(
    told: dict[str, int], rate: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    connected = _connected(
        startDirtyRateCalc=lambda _seconds, _flags: 0,
        getAllDomainStats=lambda *_arguments: [(SimpleNamespace(UUIDString=lambda: UUID), told)],
    )
    assert move_facts.read_dirty_rate(connected, UUID) == rate


def test_a_rate_that_libvirt_does_not_measure_is_not_known() -> None:
    assert move_facts.read_dirty_rate(_connected(startDirtyRateCalc=_fails()), UUID) is None


@pytest.mark.parametrize("mode", ["passthrough", "emulate"])
def test_a_guest_with_the_address_bits_of_its_host_is_known(mode: str) -> None:
    xml = _xml(cpu=f"<cpu mode='host-passthrough'><maxphysaddr mode='{mode}'/></cpu>")
    assert move_facts.has_address_bits(xml) is (mode == "passthrough")
