# SPDX-License-Identifier: Apache-2.0
"""Findings from look to look: events for onset and end, and metrics."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.fleet_factory import a40_host, leases_of, vm
from vgpuctl.model.event import EventFilter
from vgpuctl.model.lease import Lease
from vgpuctl.model.over_promise import OverPromise
from vgpuctl.quota.limits import Quota
from vgpuctl.scheduler.place import place
from vgpuctl.store.store import Store, open_store
from vgpuctl.telemetry.exposition import encode
from vgpuctl.telemetry.history import History, MeasuredValue, Subject
from vgpuctl.usecases.telemetry.findings_watch import FindingsWatch, page_of

NOW = 1_800_000_000.0
GIB = float(1 << 30)
KINDS = EventFilter(kinds=("framebuffer-predicted", "contention-observed"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.db", clock=lambda: NOW) as opened:
        yield opened


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history") as opened:
        yield opened


@pytest.fixture
def leases() -> list[Lease]:
    """Three VMs: noisy and victim on one card, leaks on another."""
    found: list[Lease] = []
    for name, profile in (("noisy", "A40-24Q"), ("victim", "A40-24Q"), ("leaks", "A40-8Q")):
        found += leases_of(place(vm(profile), [a40_host(cards=2)], found), vm_name=name)
    return found


def _fill(history: History, leases: list[Lease], first: int, last: int, *, is_calm: bool = False) -> None:
    """Keep minutes from `first` to `last` after NOW."""
    for minute in range(first, last):
        values = []
        for lease in leases:
            subject = Subject("vgpu", lease.host, lease.share.vfio_device, lease.share.gpu, lease.tenant, lease.vm_name)
            values += [
                MeasuredValue(subject, *one) for one in _measured(lease.vm_name, minute, is_calm=is_calm).items()
            ]
        history.add(NOW + 60 * minute, values)


def _measured(name: str, minute: int, *, is_calm: bool) -> dict[str, float]:
    if name == "leaks":
        return {"framebuffer_used_bytes": 2 * GIB if is_calm else (2 + (minute + 30) / 20) * GIB}
    use = {"noisy": 0.4 if is_calm else 0.9, "victim": 0.1}[name]
    steal = 0.4 if name == "victim" and not is_calm else 0.0
    return {"utilization_ratio": use, "share_utilization_ratio": use * 2, "steal_ratio": steal}


def _events(store: Store) -> list[tuple[str, str, object]]:
    with store.reading() as session:
        return sorted((one.subject, one.kind, one.after["state"]) for one in session.events(None, KINDS))


def test_each_onset_and_each_end_is_one_event_over_restarts_and_processes(
    store: Store, history: History, leases: list[Lease]
) -> None:
    _fill(history, leases, -20, 0)
    watch = FindingsWatch()
    found = watch.look(store, history, NOW, leases)
    assert {one.vm for one in found} == {"noisy", "leaks"}
    begun = [
        ("acme/leaks", "framebuffer-predicted", "begun"),
        ("acme/noisy", "contention-observed", "begun"),
    ]
    assert _events(store) == begun
    watch.look(store, history, NOW, leases)
    FindingsWatch().look(store, history, NOW, leases)
    assert _events(store) == begun

    _fill(history, leases, 0, 40, is_calm=True)
    for minute in (20, 30, 33, 36):
        assert watch.look(store, history, NOW + 60 * minute, leases) == []
    assert _events(store) == begun, "what flickers is not over"
    watch.look(store, history, NOW + 60 * 39, leases)
    over = [(subject, kind, "over") for subject, kind, _ in begun]
    assert _events(store) == sorted([*begun, *over])
    _fill(history, leases, 160, 180)
    watch.look(store, history, NOW + 60 * 180, leases)
    assert len(_events(store)) == 6


def test_a_process_that_begins_tells_the_end_of_what_an_earlier_one_told(
    store: Store, history: History, leases: list[Lease]
) -> None:
    _fill(history, leases, -20, 0)
    FindingsWatch().look(store, history, NOW, leases)
    _fill(history, leases, 0, 40, is_calm=True)
    second = FindingsWatch()
    for minute in (20, 25, 30, 35, 39):
        second.look(store, history, NOW + 60 * minute, leases)
    assert sorted(map(str, _states(store))) == ["begun", "begun", "over", "over"]


def test_time_that_nobody_measures_is_not_given_back(store: Store, history: History, leases: list[Lease]) -> None:
    noisy, _victim, leaks = leases
    _fill(history, leases, -20, 0)
    watch = FindingsWatch()
    watch.look(store, history, NOW, leases)
    _fill(history, [noisy, leaks], 0, 160, is_calm=True)
    for minute in (20, 60, 100, 130, 140, 150, 155, 160):
        watch.look(store, history, NOW + 60 * minute, leases)
    assert ("acme/noisy", "contention-observed", "over") not in _events(store), "the victim was not measured"
    for _look in range(5):
        watch.look(store, history, NOW + 60 * 160, [noisy, leaks])
    assert ("acme/noisy", "contention-observed", "over") in _events(store), "its only victim is gone"


def test_what_a_tenants_policy_allows_is_an_event_and_no_metric(
    store: Store, history: History, leases: list[Lease]
) -> None:
    with store.transaction() as session:
        session.add_tenant("acme")
        session.set_quotas("acme", [Quota("over-promise", list(OverPromise).index(OverPromise.ALLOW))])
    _fill(history, leases, -20, 0)
    assert {one.vm for one in FindingsWatch().look(store, history, NOW, leases)} == {"leaks"}
    with store.reading() as session:
        (told,) = session.events(None, EventFilter(kinds=("contention-observed",)))
    assert (told.after["state"], told.evidence["policy"]) == ("begun", "allow")


def _use(history: History, lease: Lease, used_gib: dict[int, float]) -> None:
    """Keep the use of a framebuffer, by the minute after NOW."""
    subject = Subject("vgpu", lease.host, lease.share.vfio_device, lease.share.gpu, lease.tenant, lease.vm_name)
    for minute, gib in used_gib.items():
        history.add(NOW + 60 * minute, [MeasuredValue(subject, "framebuffer_used_bytes", gib * GIB)])


def _states(store: Store) -> list[object]:
    with store.reading() as session:
        return [one.after["state"] for one in reversed(session.events(None, KINDS))]


def test_a_framebuffer_that_ran_out_is_not_over_while_it_is_full(
    store: Store, history: History, leases: list[Lease]
) -> None:
    leaks = leases[2]
    _use(history, leaks, {minute: min(8.0, 2 + (minute + 60) / 10) for minute in range(-60, 200)})
    watch = FindingsWatch()
    found = watch.look(store, history, NOW - 60 * 30, leases)
    assert [one.vm for one in found] == ["leaks"] and _states(store) == ["begun"]
    for minute in range(0, 195, 15):
        (one,) = watch.look(store, history, NOW + 60 * minute, leases)
        assert one.figures["used_ratio"] > 0.95
    # The trend is flat for long, and a process that begins now knows from the events what was told.
    (one,) = FindingsWatch().look(store, history, NOW + 60 * 195, leases)
    assert (one.figures["exhaustion_seconds"], one.text[-12:]) == (0.0, ": it is full")
    assert [value for family in page_of([one]).families for _, value in family.rows] == [0.0, 0.0, 0.0]
    assert _states(store) == ["begun"]


def test_a_framebuffer_that_nobody_tells_of_is_not_over_and_ends_when_it_is_less(
    store: Store, history: History, leases: list[Lease]
) -> None:
    leaks = leases[2]
    _use(history, leaks, {minute: 2 + (minute + 60) / 12 for minute in range(-60, 0)})
    watch = FindingsWatch()
    assert watch.look(store, history, NOW, leases)
    for minute in range(20, 40):
        assert watch.look(store, history, NOW + 60 * minute, leases) == []
    assert _states(store) == ["begun"]
    _use(history, leaks, dict.fromkeys(range(40, 60), 2.0))
    for minute in range(50, 60):
        watch.look(store, history, NOW + 60 * minute, leases)
    assert sorted(map(str, _states(store))) == ["begun", "over"]


def test_a_framebuffer_that_is_full_from_the_start_is_the_tenants_own_business(
    store: Store, history: History, leases: list[Lease]
) -> None:
    _use(history, leases[2], dict.fromkeys(range(-120, 20), 7.9))
    watch = FindingsWatch()
    for minute in range(0, 20):
        assert watch.look(store, history, NOW + 60 * minute, leases) == []
    assert _states(store) == []


def test_the_metrics_name_the_vm(store: Store, history: History, leases: list[Lease]) -> None:
    _fill(history, leases, -20, 0)
    page = page_of(FindingsWatch().look(store, history, NOW, leases))
    text, _content_type = encode([page], "")
    samples = {
        (one.name, one.labels["vm"], one.labels.get("bound")): one.value
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
    }
    name = "vgpuctl_vgpu_framebuffer_exhaustion_seconds"
    bounds = [samples[name, "leaks", bound] for bound in ("earliest", "expected", "latest")]
    assert bounds == sorted(bounds)
    assert bounds[1] == pytest.approx((8 - (2 + 29 / 20)) * 20 * 60, rel=0.05)
    assert samples["vgpuctl_gpu_contention_ratio", "noisy", None] == pytest.approx(0.4)
    assert encode([page_of([])], "")[0] == b""


def test_a_store_that_may_only_be_read_gets_no_event(
    tmp_path: Path, store: Store, history: History, leases: list[Lease]
) -> None:
    _fill(history, leases, -20, 0)
    with open_store(f"sqlite:///{tmp_path}/store.db?mode=ro", clock=lambda: NOW) as reader:
        assert FindingsWatch().look(reader, history, NOW, leases)
    assert _events(store) == []


def test_readings_of_vms_that_are_gone_are_left_out(store: Store, history: History, leases: list[Lease]) -> None:
    _fill(history, leases, -20, 0)
    assert FindingsWatch().look(store, history, NOW, leases[:1]) == []
    assert FindingsWatch().look(store, history, NOW, []) == []
    assert _events(store) == []
