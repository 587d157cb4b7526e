# SPDX-License-Identifier: Apache-2.0
"""Findings of what VMs share, from look to look: events and metrics."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.usecases.telemetry.test_measured_resources import NAS, NOW, SRV, Told, falls, flat, grows, keep
from vgpuctl.model.event import EventFilter
from vgpuctl.scheduler.advice.exhaustion import Prospect
from vgpuctl.store.store import Store
from vgpuctl.telemetry.exposition import encode
from vgpuctl.telemetry.history import History
from vgpuctl.telemetry.host_page import kept_values
from vgpuctl.usecases.telemetry.findings_watch import FindingsWatch, page_of
from vgpuctl.usecases.telemetry.measured_resources import read_outlooks

KINDS = EventFilter(kinds=("exhaustion-observed",))


def _events(store: Store) -> list[tuple[str, str | None, object]]:
    with store.reading() as session:
        return [(one.subject, one.host, one.after["state"]) for one in session.events(None, KINDS)]


def test_a_finding_lasts_while_it_is_used_up_over_silence_and_restarts_and_ends_when_there_is_room(
    store: Store, history: History
) -> None:
    """Minutes are counted from NOW - 60 minutes on."""

    def look(watch: FindingsWatch, before: int) -> list[str]:
        return [one.resource for one in watch.look(store, history, NOW - 60 * before, [])]

    name = f"disk pool on {SRV}"
    full = Told(pools={("default", SRV): (flat(1000), flat(10))}, disks={("web", SRV): flat(700)})
    keep(history, {"gpu1": full}, first=90, last=70, step=1)
    watch = FindingsWatch()
    assert look(watch, 70) == [name]
    begun = [(name, "gpu1", "begun")]
    assert _events(store) == begun
    # The host does not answer for half an hour.
    for before in range(60, 40, -1):
        assert look(watch, before) == []
    assert _events(store) == begun, "what nobody tells is not over"
    keep(history, {"gpu1": full}, first=40, last=30, step=1)
    assert look(FindingsWatch(), 30) == [name]
    assert _events(store) == begun, "a restart tells it once"
    # A process that begins after the end ends it all the same.
    empty = Told(pools={("default", SRV): (flat(1000), flat(500))})
    keep(history, {"gpu1": empty}, first=25, last=1, step=1)
    again = FindingsWatch()
    for before in range(10, 1, -1):
        assert look(again, before) == []
    assert _events(store) == [*begun, (name, "gpu1", "over")]
    with store.reading() as session:
        first, last = session.events(None, KINDS)
    assert first.evidence["finding"] == "disk-pool-runs-out" and first.evidence["causes"] == ["acme/web"]
    assert "acme/web 71%" in first.detail and first.tenant is None
    assert last.detail == "disk-pool-runs-out is over"


def test_another_pool_in_a_file_system_changes_no_finding(store: Store, history: History) -> None:
    room = (flat(1000), flat(10))
    keep(history, {"gpu1": Told(pools={("default", SRV): room})}, first=90, last=60, step=1)
    keep(history, {"gpu1": Told(pools={("default", SRV): room, ("more", SRV): room})}, first=59, last=1, step=1)
    watch = FindingsWatch()
    (before,) = watch.look(store, history, NOW - 60 * 60, [])
    (after,) = watch.look(store, history, NOW, [])
    assert before.key == after.key
    assert f"disk pool on {SRV} (default): " in before.text and f"disk pool on {SRV} (default, more): " in after.text
    assert len(_events(store)) == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_finding_ends_when_its_hosts_have_the_resource_no_more_or_are_gone(
    store: Store, history: History, is_restarted: bool
) -> None:
    """Of a file system of the network, of its own host, and of a host that was taken out of the inventory."""
    full, memory = (flat(1000), flat(10)), (flat(512), flat(300))
    keep(history, {"gpu1": Told(memory, pools={("p", NAS): full}), "gpu2": Told(memory, pools={("p", SRV): full})})
    keep(history, {"gone": Told(memory, pools={("p", "/gone"): full, ("q", "old:/gone"): full})})
    hosts = {"gpu1", "gpu2", "gone"}
    watches = [FindingsWatch()]
    assert len(watches[0].look(store, history, NOW, [], hosts)) == 4
    # Later than the readings of pools go back, and with readings of the memory alone.
    later = NOW + 8 * 3600
    told = Told(memory).readings(0)

    def look(minute: int, *names: str) -> None:
        for name in ("gpu1", "gpu2")[: minute // 10]:
            history.add(later + 60 * minute, kept_values(name, told, ()))
        if is_restarted and minute % 10 == 0:
            watches.append(FindingsWatch())
        assert watches[-1].look(store, history, later + 60 * minute, [], set(names)) == []

    def over() -> set[str]:
        return {subject for subject, _host, state in _events(store) if state == "over"}

    for minute in range(10):
        look(minute, *hosts)
    assert over() == set(), "nobody answers"
    for minute in range(10, 20):
        look(minute, *hosts)
    assert over() == {f"disk pool on {NAS}"}, "gpu1 answers and has it no more"
    for minute in range(20, 30):
        look(minute, *hosts)
    assert over() == {f"disk pool on {NAS}", f"disk pool on {SRV}"}
    for minute in range(30, 40):
        look(minute, "gpu1", "gpu2")
    assert len(over()) == 4, "the host is not in the inventory any more"


@pytest.mark.parametrize("are_pools_read", [True, False])
def test_a_pool_that_cannot_be_read_for_hours_is_no_pool_that_is_gone(
    store: Store, history: History, are_pools_read: bool
) -> None:
    memory = (flat(512), flat(300))
    keep(history, {"gpu1": Told(memory, pools={("nas", NAS): (flat(1000), flat(10))})}, first=30, last=1, step=1)
    watch = FindingsWatch()
    assert watch.look(store, history, NOW, [], {"gpu1"})
    told, later = Told(memory, are_pools_read=are_pools_read).readings(0), NOW + 7 * 3600
    for minute in range(10):
        history.add(later + 60 * minute, kept_values("gpu1", told, ()))
        watch.look(store, history, later + 60 * minute, [], {"gpu1"})
    assert [state for _subject, _host, state in _events(store)] == ["begun", *(["over"] if are_pools_read else [])]


def test_readings_that_tell_nothing_end_no_finding(store: Store, history: History) -> None:
    """Memory grows, and then stands: for a while nobody knows whether it grows on."""
    keep(history, {"gpu1": Told(memory=(flat(512), lambda before: 10 + 0.25 * max(before, 75)))}, first=150, step=1)
    watch = FindingsWatch()
    assert watch.look(store, history, NOW - 60 * 64, [])
    for before in range(58, 40, -1):
        assert watch.look(store, history, NOW - 60 * before, []) == []
        (found,) = read_outlooks(store, history, NOW - 60 * before)
        assert (found.ending, found.is_read) == (Prospect.UNKNOWN, True)
    assert _events(store) == [("memory", "gpu1", "begun")]


def test_the_metrics_name_the_resource_and_the_vms(store: Store, history: History) -> None:
    told = Told(pools={("default", SRV): (flat(1000), falls(100, 0.5))}, disks={("web", SRV): grows(300, 0.5)})
    keep(history, {"gpu1": told})
    page = page_of(FindingsWatch().look(store, history, NOW, []))
    samples = {
        (one.name, one.labels.get("bound"), one.labels.get("vm")): (one.labels, one.value)
        for family in text_string_to_metric_families(encode([page], "")[0].decode())
        for one in family.samples
    }
    bounds = [samples["vgpuctl_exhaustion_seconds", bound, None][1] for bound in ("earliest", "expected", "latest")]
    assert bounds == sorted(bounds) and bounds[1] == pytest.approx(12_000, rel=0.02)
    labels, ratio = samples["vgpuctl_exhaustion_cause_ratio", None, "web"]
    assert ratio == pytest.approx(1.0, abs=0.02)
    assert labels == {
        "host": "gpu1",
        "resource": "disk-pool",
        "name": f"disk pool on {SRV} of gpu1",
        "tenant": "acme",
        "vm": "web",
    }
