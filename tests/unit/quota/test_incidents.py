# SPDX-License-Identifier: Apache-2.0
"""A tenant's incidents are those that its running VMs felt, with their ends and what they meant."""

from dataclasses import replace

from vgpuctl.model.event import Event, Value, Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.health import HealthCode
from vgpuctl.quota.incidents import _FELT, END_KINDS, INCIDENT_KINDS, POWER_KINDS, Incident, incidents_of
from vgpuctl.quota.usage import Interval

BEGIN = 1_790_812_800.0
GPU = "0000:41:00.0"
OF_GPU = f"gpu1 {GPU}"
_number = iter(range(1, 10_000))


def interval(
    begun: float, ended: float | None, *, tenant: str = "acme", vm: str = "web-1", lease: str = "l"
) -> Interval:
    return Interval(lease, tenant, "u", vm, "gpu1", GPU, "A40-8Q", 8192, 0, 1 / 6, begun, ended)


def event(
    at: float,
    kind: EventKind,
    subject: str,
    detail: str = "",
    *,
    tenant: str | None = None,
    evidence: dict[str, Value] | None = None,
    state: str | None = None,
    before: Values | None = None,
    **after: Value,
) -> Event:
    states: dict[str, Value] = {} if state is None else {"state": state}
    return Event(
        next(_number), at, kind, subject, detail, tenant, before=before or {}, after={**states, **after},
        evidence=evidence or {},
    )  # fmt: skip


def finding(at: float, code: HealthCode, *vms: str, device: str = OF_GPU) -> Event:
    return event(BEGIN + at, EventKind.GPU_HEALTH, device, str(code), evidence={"finding": code, "vms": list(vms)})


def host(at: float, state: str, name: str = "gpu1") -> Event:
    return event(BEGIN + at, EventKind.HOST_OBSERVED, name, state=state)


def of_vm(at: float, kind: EventKind, vm: str = "web-1", tenant: str = "acme", **rest: Value) -> Event:
    return event(BEGIN + at, kind, f"{tenant}/{vm}", tenant=tenant, **rest)  # type: ignore[arg-type]


MINE = [interval(BEGIN, None), interval(BEGIN, None, vm="web-2", lease="m")]
OTHERS = [interval(BEGIN, None, tenant="globex", vm="db", lease="n")]


def felt(*events: Event, tenant: str = "acme", until: float = 1e9, power: tuple[Event, ...] = ()) -> list[Incident]:
    own = [one for one in (*MINE, *OTHERS) if one.tenant == tenant]
    return incidents_of(sorted(events, key=lambda one: one.at), own, tenant, BEGIN + until, power)


def brief(found: list[Incident]) -> list[tuple[float, str, tuple[str, ...], float | None]]:
    return [(one.at - BEGIN, one.what, one.vms, one.duration_s) for one in found]


def test_what_no_running_vm_felt_is_no_incident() -> None:
    assert felt(
        event(BEGIN + 1, EventKind.GPU_QUARANTINED, OF_GPU, "by hand"),
        event(BEGIN + 2, EventKind.HOST_DRAINED, "gpu1"),
        event(BEGIN + 3, EventKind.HOST_CORDONED, "gpu1"),
        finding(4, HealthCode.ROW_REMAP_PENDING, "acme/web-1"),
        finding(5, HealthCode.UNREAD, "acme/web-1"),
        finding(6, HealthCode.OFF_THE_BUS, device="gpu1 0000:81:00.0"),
        finding(7, HealthCode.OFF_THE_BUS, "globex/db"),
        finding(8, HealthCode.RESET_FAILED, device="gpu1 0000:41:00.5"),
        host(9, "unreachable", "gpu2"),
        host(10, "host-key-changed"),
        of_vm(11, EventKind.VM_PREEMPTED, "db", "globex"),
        of_vm(12, EventKind.LEASE_BROKEN, before={"state": "releasing"}),  # type: ignore[arg-type]
        of_vm(13, EventKind.VM_OBSERVED, state="shut-off"),
    ) == []  # fmt: skip
    assert felt(host(1, "unreachable"), tenant="nobody") == []


def test_a_vm_that_was_off_felt_nothing() -> None:
    power = (of_vm(1, EventKind.VM_CREATED), of_vm(5, EventKind.VM_STOPPED), of_vm(50, EventKind.VM_STARTED))
    fault = (finding(10, HealthCode.OFF_THE_BUS, "acme/web-1", "acme/web-2"), host(20, "unreachable"), host(30, "up"))
    assert [one.vms for one in felt(*fault, power=power)] == [("web-2",), ("web-2",)]
    assert [one.vms for one in felt(finding(60, HealthCode.OFF_THE_BUS, "acme/web-1"), power=power)] == [("web-1",)]


def test_a_card_off_the_bus_is_one_incident_until_it_is_handed_out_again() -> None:
    found = felt(
        finding(10, HealthCode.UNREAD, "acme/web-1", "globex/db"),
        finding(10.1, HealthCode.XID_RESTART_BM, "acme/web-1", "globex/db", "acme..x.y"),
        finding(10.25, HealthCode.OFF_THE_BUS, "acme/web-1", "globex/db"),
        event(BEGIN + 11, EventKind.GPU_RELEASED, "gpu1 0000:81:00.0"),
        event(BEGIN + 40.25, EventKind.GPU_RELEASED, OF_GPU),
    )
    assert brief(found) == [(10.25, "GPU fault", ("web-1",), 30.0)]
    assert found[0].effect == "the GPU stopped working in the VM"


def test_a_fault_of_a_gpu_ends_when_the_last_vm_has_left_it() -> None:
    left = [interval(BEGIN, BEGIN + 25)]
    assert (
        incidents_of([finding(10, HealthCode.GPU_MISSING, "acme/web-1")], left, "acme", BEGIN + 100)[0].duration_s == 15
    )
    assert felt(finding(10, HealthCode.GPU_MISSING, "acme/web-1"))[0].duration_s is None


def test_an_event_without_the_names_of_vms_hits_those_with_a_share_there_then() -> None:
    old = event(BEGIN + 10, EventKind.GPU_HEALTH, OF_GPU, evidence={"finding": HealthCode.ECC_UNCORRECTED})
    assert [one.vms for one in felt(old)] == [("web-1", "web-2")]
    assert incidents_of([old], [interval(BEGIN, BEGIN + 5)], "acme", BEGIN + 100) == []


def test_an_outage_is_one_incident_and_says_whether_the_host_was_restarted() -> None:
    went_on = felt(host(10, "unreachable"), host(12, "wrong-host"), host(40, "up"))
    assert brief(went_on) == [(10, "host outage", ("web-1", "web-2"), 30.0)]
    assert went_on[0].effect == "nobody could reach the VM's host; no restart of it was seen"
    reboot = event(BEGIN + 40.01, EventKind.HOST_REBOOTED, "gpu1")
    power = (of_vm(41, EventKind.VM_OBSERVED, state="shut-off"), of_vm(45, EventKind.VM_STARTED))
    both = (*power, of_vm(48, EventKind.VM_STARTED, "web-2"))
    restarted = felt(host(10, "unreachable"), host(40, "up"), reboot, power=both)
    assert brief(restarted) == [(10, "host outage", ("web-1", "web-2"), 38.0)]
    assert restarted[0].effect == "the VM ended with its host"
    assert felt(host(10, "unreachable"), host(40, "up"), reboot, power=power)[0].duration_s is None, "web-2 is off"
    later = event(BEGIN + 90, EventKind.HOST_REBOOTED, "gpu1")
    assert [one.what for one in felt(host(10, "unreachable"), host(40, "up"), later)] == [
        "host outage",
        "host rebooted",
    ]


def test_an_incident_belongs_to_the_period_of_its_begin_and_may_end_later() -> None:
    outage = (host(10, "unreachable"), host(40, "up"), host(50, "unreachable"))
    assert brief(felt(*outage, until=20)) == [(10, "host outage", ("web-1", "web-2"), 30.0)]


def test_a_broken_promise_ends_when_its_own_row_is_kept_again() -> None:
    def promise(at: float, row: str, state: str) -> Event:
        return of_vm(at, EventKind.PROMISE_OBSERVED, state=state, evidence={"row": row})  # type: ignore[arg-type]

    found = felt(promise(1, "ports", "broken"), promise(2, "vcpus", "kept"), promise(9, "ports", "kept"))
    assert brief(found) == [(1, "broken promise", ("web-1",), 8.0)]
    many = [promise(1, "ports", "broken"), promise(1.01, "vcpus", "broken"), promise(1.02, "disks", "broken")]
    found = felt(*many, promise(5, "gpu-type", "broken"), promise(6, "ports", "kept"))
    assert brief(found) == [(1, "broken promise", ("web-1",), None), (5, "broken promise", ("web-1",), None)]
    assert found[0].effect == "the VM lacked something that was promised: ports, vcpus, disks"
    ended = felt(*many, *(promise(at, row, "kept") for at, row in ((6, "ports"), (8, "disks"), (7, "vcpus"))))
    assert brief(ended) == [(1, "broken promise", ("web-1",), 7.0)]


def test_a_vm_that_failed_is_an_incident_until_it_runs_again() -> None:
    failed = of_vm(5, EventKind.VM_OBSERVED, state="shut-off", failed=True)
    assert brief(felt(failed, power=(failed, of_vm(9, EventKind.VM_STARTED)))) == [(5, "VM failed", ("web-1",), 4.0)]
    assert brief(felt(of_vm(7, EventKind.VM_PREEMPTED))) == [(7, "preemption", ("web-1",), None)]


def test_the_end_of_a_vm_with_its_host_is_told_once() -> None:
    reboot = event(BEGIN + 4, EventKind.HOST_REBOOTED, "gpu1")
    ended = replace(of_vm(14, EventKind.VM_OBSERVED, state="shut-off", failed=True), host="gpu1")
    assert [one.what for one in felt(reboot, ended)] == ["host rebooted"]
    assert [one.what for one in felt(reboot, replace(ended, at=BEGIN + 4000))] == ["host rebooted", "VM failed"]


def test_every_kind_and_finding_is_one_of_the_tables() -> None:
    assert {*INCIDENT_KINDS, *END_KINDS, *POWER_KINDS} <= set(EventKind)
    assert set(_FELT) <= set(HealthCode)
