# SPDX-License-Identifier: Apache-2.0
"""Readings of VMs: libvirt's statistics, parsed strictly and in bounds."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.measured import play, read, vm_uuid
from tests.agent.simulated import Machine
from vgpuctl.agent.facts.pools import FileSystems
from vgpuctl.agent.host import Completed
from vgpuctl.agent.readings import domains, vms
from vgpuctl.agent.readings.domains import RunningDomain
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl_lab.simulated.machine.domains import start
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost

XML = """<domain type='kvm'><name>acme.web</name><uuid>{uuid}</uuid>
<metadata><vgpuctl:vm xmlns:vgpuctl="urn:vgpuctl:domain:1" tenant="{tenant}" name="web" host="gpu1"/></metadata>
<memory unit='KiB'>2097152</memory><vcpu>4</vcpu><devices>
<disk type='file' device='disk'><target dev='vda'/></disk><disk type='file' device='cdrom'><target dev='sda'/></disk>
<interface type='network'><target dev='vnet7'/></interface></devices></domain>"""
DOMSTATS = """Domain: 'acme.web'
  state.state=1
  state.reason=1
  cpu.time=12500000000
  balloon.current=2097152
  balloon.maximum=4194304
  balloon.unused=1048576
  balloon.rss=1572864
  vcpu.current=2
  vcpu.maximum=4
  vcpu.0.state=1
  vcpu.0.delay=1500000000
  vcpu.3.state=1
  vcpu.3.delay=500000000
  net.count=1
  net.0.name=vnet7
  net.0.rx.bytes=1000
  net.0.rx.pkts=10
  net.0.rx.errs=1
  net.0.rx.drop=2
  net.0.tx.bytes=2000
  net.0.tx.pkts=20
  net.0.tx.errs=3
  net.0.tx.drop=4
  block.count=1
  block.0.name=vda
  block.0.path=/var/lib/libvirt/images/web = 1.qcow2
  block.0.rd.reqs=5
  block.0.rd.bytes=4096
  block.0.rd.times=2000000
  block.0.wr.reqs=6
  block.0.wr.bytes=8192
  block.0.wr.times=3000000

"""

# libvirt 9.0.0 with QEMU 7.2 on Debian 12, 2026-11-25: a domain with one of two virtual CPUs and a user-mode interface.
RECORDED = """Domain: 'stat'test'
  state.state=1
  state.reason=1
  cpu.time=290000000
  cpu.user=110000000
  cpu.system=180000000
  cpu.cache.monitor.count=0
  cpu.haltpoll.success.time=0
  cpu.haltpoll.fail.time=0
  balloon.current=65536
  balloon.maximum=65536
  balloon.last-update=0
  balloon.rss=48192
  vcpu.current=1
  vcpu.maximum=2
  vcpu.0.state=1
  vcpu.0.time=100000000
  vcpu.0.wait=0
  vcpu.0.delay=324215885
  net.count=1
  block.count=1
  block.0.name=vda
  block.0.path=/tmp/d.img
  block.0.backingIndex=1
  block.0.rd.reqs=1
  block.0.rd.bytes=512
  block.0.rd.times=8189907
  block.0.wr.reqs=0
  block.0.wr.bytes=0
  block.0.wr.times=0
  block.0.fl.reqs=0
  block.0.fl.times=0
  block.0.allocation=0
  block.0.capacity=8388608
  block.0.physical=8388608

"""


class Virsh(SimulatedHost):
    """A host whose virsh says what the test wants."""

    said = Completed(0, DOMSTATS, "")

    def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
        return self.said


def running(simulated: Machine, tenant: str = "acme") -> Machine:
    """The machine with a VM of a tenant."""
    start(simulated.files, vm_uuid(0), "acme.web", [], xml=XML.format(uuid=vm_uuid(0), tenant=tenant))
    return simulated


def test_a_vm_has_every_statistic_in_base_units(tmp_path: Path) -> None:
    [vm] = read(running(Machine(tmp_path, "a40", host=Virsh))).vms
    assert (vm.uuid, vm.name, vm.tenant) == (vm_uuid(0), "acme.web", "acme")
    plain = {(name, *labels): value for name, labels, value in vm.measured.values if name != "state"}
    assert vm.measured.label("state") == "running"
    assert 0 <= plain.pop(("start_since_boot_seconds",)) < 86_400
    assert plain == {
        ("vcpus",): 2,
        ("cpu_seconds",): 12.5,
        ("vcpu_steal_seconds",): 2.0,
        ("memory_current_bytes",): 2 << 30,
        ("memory_maximum_bytes",): 4 << 30,
        ("memory_rss_bytes",): 1572864 << 10,
        ("memory_unused_bytes",): 1 << 30,
        ("block_read_bytes", "vda"): 4096,
        ("block_written_bytes", "vda"): 8192,
        ("block_read_requests", "vda"): 5,
        ("block_write_requests", "vda"): 6,
        ("block_read_seconds", "vda"): 0.002,
        ("block_write_seconds", "vda"): 0.003,
        ("network_received_bytes", "vnet7"): 1000,
        ("network_sent_bytes", "vnet7"): 2000,
        ("network_received_packets", "vnet7"): 10,
        ("network_sent_packets", "vnet7"): 20,
        ("network_receive_errors", "vnet7"): 1,
        ("network_send_errors", "vnet7"): 3,
        ("network_receive_drops", "vnet7"): 2,
        ("network_send_drops", "vnet7"): 4,
        ("disk_allocated_bytes", "/var/lib/libvirt/images"): 1 << 30,
    }
    assert vm.measured.missing == ()


def test_the_lab_plays_what_virsh_prints(tmp_path: Path) -> None:
    simulated = running(Machine(tmp_path, "a40"))
    play(
        simulated,
        f"vm:{vm_uuid(0)} cpu_seconds 0 0:40",
        f"vm:{vm_uuid(0)} memory_unused_bytes 0 0:1048576",
        f"vm:{vm_uuid(0)} block_read_bytes/vda 0 0:5000",
        f"vm:{vm_uuid(0)} network_sent_bytes/vnet7 0 0:7000",
        f"vm:{vm_uuid(0)} vcpu_steal_seconds 0 0:2",
    )
    [vm] = read(simulated).vms
    assert vm.measured.get("vcpus") == 4
    assert vm.measured.get("cpu_seconds") == 40
    assert vm.measured.get("vcpu_steal_seconds") == 2
    assert vm.measured.get("memory_unused_bytes") == 1 << 20
    assert vm.measured.get("memory_maximum_bytes") == 2 << 30
    assert vm.measured.get("block_read_bytes", "vda") == 5000
    assert vm.measured.get("network_sent_bytes", "vnet7") == 7000
    assert {labels for labels, _ in vm.measured.all("block_written_bytes")} == {("vda",), ("sda",)}


def test_a_recorded_answer_of_libvirt_is_understood() -> None:
    told = vms.parse(RECORDED)["stat'test"]
    recorded = vms._record(told).measured()
    plain = {(name, *labels): value for name, labels, value in recorded.values if name != "state"}
    assert plain == {
        ("vcpus",): 1,
        ("cpu_seconds",): 0.29,
        ("vcpu_steal_seconds",): 0.324215885,
        ("memory_current_bytes",): 64 << 20,
        ("memory_maximum_bytes",): 64 << 20,
        ("memory_rss_bytes",): 48192 << 10,
        ("block_read_bytes", "vda"): 512,
        ("block_written_bytes", "vda"): 0,
        ("block_read_requests", "vda"): 1,
        ("block_write_requests", "vda"): 0,
        ("block_read_seconds", "vda"): 0.008189907,
        ("block_write_seconds", "vda"): 0,
    }
    assert [name for name, _, _ in recorded.missing] == ["memory_unused_bytes"]


def test_a_vm_with_a_job_tells_less_and_says_so(tmp_path: Path) -> None:
    class Migrating(Virsh):
        said = Completed(0, "Domain: 'acme.web'\n  state.state=1\n  cpu.time=5000000000\n", "")

    [vm] = read(running(Machine(tmp_path, "a40", host=Migrating))).vms
    assert vm.measured.get("cpu_seconds") == 5
    assert (vm.measured.why_missing("memory_rss_bytes") or "").startswith("not-readable")
    assert (vm.measured.why_missing("block_read_bytes") or "").startswith("not-readable")
    assert (vm.measured.why_missing("memory_unused_bytes") or "").startswith("not-measurable")
    assert (vm.measured.why_missing("vcpu_steal_seconds") or "").startswith("not-measurable")


def test_the_memory_of_a_vm_with_a_job_is_told_by_the_kernel(tmp_path: Path) -> None:
    """Otherwise its memory would seem to fall to nothing, and to rise again after the job."""

    class Migrating(Virsh):
        said = Completed(0, "Domain: 'acme.web'\n  state.state=1\n  balloon.current=2097152\n", "")

    simulated = running(Machine(tmp_path, "a40", host=Migrating))
    with simulated.files.change() as state:
        (domain,) = state.domains.values()
        state.files[f"/proc/{domain.pid}/status"] = "Name:\tqemu\nVmRSS:\t 1572864 kB\nHugetlbPages:\t0 kB\n"
    [vm] = read(simulated).vms
    assert vm.measured.get("memory_rss_bytes") == 1572864 << 10
    assert vm.measured.why_missing("memory_rss_bytes") is None


def _read(output: str, status: int = 0, errors: str = "") -> tuple[list[str], list[str]]:
    """(names of the VMs, what was not read) for an output of virsh."""

    class Said(SimulatedHost):
        def __init__(self) -> None:
            pass

        def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
            assert argv[:4] == ["virsh", "--connect", "qemu:///system", "--readonly"]
            if "list" in argv:
                return Completed(0, f"{vm_uuid(1)} other\n\n", "")
            assert "--nowait" in argv
            return Completed(status, output, errors)

    unread: list[str] = []
    found = vms.read(Said(), {"acme.web": RunningDomain(vm_uuid(0), "acme.web")}, (), FileSystems(), unread, limit_s=5)
    return [one.name for one in found], unread


@pytest.mark.parametrize(
    ("output", "names", "said"),
    [
        (DOMSTATS, ["acme.web"], None),
        ("", [], None),
        ("\x00\xff garbage\n=\n  =5\n", [], None),
        ("  state.state=1\n", [], None),
        ("Domain: 'other'\n  state.state=1\n", ["other"], None),
        ("Domain: 'gone'\n  state.state=1\n", [], "1 VMs ended"),
        ("Domain: 'acme.web'\n" + "x" * (16 << 20), [], "virsh domstats printed"),
    ],
    ids=["as usual", "no VM", "garbage", "no name", "no file", "ended", "flood"],
)
def test_what_virsh_prints_is_parsed_strictly(output: str, names: list[str], said: str | None) -> None:
    found, unread = _read(output)
    assert found == names
    assert [said in one for one in unread] == [True] if said else unread == []


@pytest.mark.parametrize("text", ["-1", "1e9", "99999999999999999999", "0x10", "", " 5"])
def test_a_number_of_another_form_is_missing(text: str, tmp_path: Path) -> None:
    told = vms.parse(f"Domain: 'acme.web'\n  cpu.time={text}\n  state.state=1\n")
    recorded = vms._record(told["acme.web"]).measured()
    assert recorded.get("cpu_seconds") is None
    assert recorded.label("state") == "running"


def test_devices_and_vcpus_are_bounded() -> None:
    lines = ["Domain: 'acme.web'", "  vcpu.maximum=999999999", "  block.count=999999999"]
    lines += [f"  block.{number}.name=vd{number}\n  block.{number}.rd.bytes=1" for number in range(100)]
    recorded = vms._record(vms.parse("\n".join(lines))["acme.web"]).measured()
    assert len(recorded.all("block_read_bytes")) == 32


def test_a_virsh_that_fails_costs_the_vms_alone(tmp_path: Path) -> None:
    assert _read("", 1, "error: failed to connect\nerror: no socket\n") == (
        [],
        ["the VMs cannot be measured: virsh domstats ended with 1 and said error: no socket"],
    )
    simulated = running(Machine(tmp_path, "a40"))
    with simulated.files.change() as state:
        state.services["libvirtd.service"] = False
    readings = read(simulated)
    assert readings.vms == ()
    assert readings.gpus[0].measured.get("power_watts") is not None
    assert "Failed to connect socket" in readings.unread[0]


def test_a_virsh_that_hangs_or_is_missing_is_said(tmp_path: Path) -> None:
    class Missing(SimulatedHost):
        def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
            raise Problem(ProblemCode.PROGRAM_TIMED_OUT, f"{argv[0]} did not end within {timeout_s:g} s")

    readings = read(running(Machine(tmp_path, "a40", host=Missing)))
    assert readings.unread == ("the VMs cannot be measured: virsh did not end within 20 s",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<domstatus><domain>", "cannot be understood"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><domstatus/>", "is no file of libvirt"),
        ("<domstatus>" + " " * (1 << 20), "is no file of libvirt"),
        ("<network/>", None),
        ("<domstatus><domain><name>x</name><uuid>no uuid</uuid></domain></domstatus>", None),
        (f"<domstatus><domain><name></name><uuid>{vm_uuid(0)}</uuid></domain></domstatus>", None),
    ],
    ids=["cut off", "entities", "flood", "a network", "no UUID", "no name"],
)
def test_a_file_that_is_not_libvirts_is_no_domain(text: str, said: str | None, tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    folder = simulated.files.root / domains.FOLDER.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "x.xml").write_text(text)
    unread: list[str] = []
    assert domains.read(simulated.host, unread) == {}
    assert [said in one for one in unread] == [True] if said else unread == []


@pytest.mark.parametrize("tenant", ["", "a b", "\\x1b[2J", "x" * 64, "-a"])
def test_a_tenant_of_another_form_is_none(tenant: str, tmp_path: Path) -> None:
    simulated = running(Machine(tmp_path, "a40"), tenant)
    [domain] = domains.read(simulated.host, []).values()
    assert domain.tenant is None
