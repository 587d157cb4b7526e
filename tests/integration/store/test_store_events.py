# SPDX-License-Identifier: Apache-2.0
"""Events of the store: filters, and following them."""

import sqlite3
from pathlib import Path

import pytest

from tests.integration.store.conftest import Clock
from vgpuctl.errors import UsageError
from vgpuctl.model.event import EVERY_EVENT, Actor, EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.store.store import Store, open_store


@pytest.fixture
def filled(store: Store, url: str, clock: Clock) -> Store:
    """Events of two users: 1 a VM, 2 a host, 3 the VM again, 4 another tenant."""
    alice = Actor("create-vm", "alice", "admin-1")
    root = Actor("repair", "alice (root)", "admin-1")
    with open_store(url, clock=clock, actor=alice) as opened, opened.transaction() as session:
        session.add_event(EventKind.VM_CREATED, "acme/web-1", tenant="acme", host="gpu1", at=100.0)
        session.add_event(EventKind.HOST_ADOPTED, "gpu1", host="gpu1", at=200.0)
    with open_store(url, clock=clock, actor=root) as opened, opened.transaction() as session:
        session.add_event(EventKind.VM_REPAIRED, "acme/web-1", tenant="acme", host="gpu2", at=300.0)
        session.add_event(EventKind.TENANT_CREATED, "umbrella/web-1", tenant="umbrella", at=400.0)
    return store


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (EVERY_EVENT, [1, 2, 3, 4]),
        (EventFilter(("acme/web-1", "gpu1")), [1, 2, 3]),
        (EventFilter(kinds=("vm-*",)), [1, 3]),
        (EventFilter(kinds=("vm-created", "host-*")), [1, 2]),
        (EventFilter(kinds=("tenant-*",)), [4]),
        (EventFilter(kinds=("vm_*",)), []),
        (EventFilter(kinds=("%",)), []),
        (EventFilter(kinds=("VM-created",)), []),
        (EventFilter(tenant="acme"), [1, 3]),
        (EventFilter(host="gpu2"), [3]),
        (EventFilter(command="repair"), [3, 4]),
        (EventFilter(user="alice"), [1, 2, 3, 4]),
        (EventFilter(user="alice (root)"), [3, 4]),
        (EventFilter(since=200.0, until=400.0), [2, 3]),
        (EventFilter(after_id=3), [4]),
        (EventFilter(("acme/web-1",), tenant="umbrella"), []),
    ],
)
def test_a_filter_takes_what_fits_all_of_its_parts(filled: Store, wanted: EventFilter, found: list[int]) -> None:
    with filled.reading() as session:
        assert [one.id for one in session.events(None, wanted)] == found
        assert [one.id for one in session.next_events(10, wanted)] == found


def test_events_with_the_names_of_an_older_vgpuctl_are_found_and_shown_by_todays(store: Store) -> None:
    with store.transaction() as session:
        session.add_event(EventKind.VM_CREATED, "a..b.web.1", tenant="a.b", at=1.0)
        session.add_event(EventKind.VM_STARTED, "a.b/web.1", tenant="a.b", at=2.0)
        session.add_event(EventKind.TENANT_CREATED, "a.b", tenant="a.b", at=3.0)
        session.add_event(EventKind.HOST_ADOPTED, "a.b.example", host="a.b.example", at=4.0)
    with store.reading() as session:
        assert [one.subject for one in session.events(None, EventFilter(("a.b/web.1",)))] == ["a.b/web.1"] * 2
        assert [one.subject for one in session.events(None)] == ["a.b/web.1", "a.b/web.1", "a.b", "a.b.example"]


def test_events_of_a_pool_are_its_own_and_those_of_its_nodes(store: Store) -> None:
    nodes = ("a..b.gpu-001", "a.b/gpu-1024")
    others = ("a..b.gpu-big-001", "a..b.gpu-01", "axxb.gpu-001", "a..b.gpu-abc", "a..b.gpu-00001")
    with store.transaction() as session:
        for subject in ("a.b/gpu", *nodes, *others):
            session.add_event(EventKind.NODE_WANTED, subject, tenant="a.b", at=100.0)
        session.add_event(EventKind.NODE_WANTED, nodes[0], tenant="a", at=100.0)
        found = session.events(None, EventFilter(tenant="a.b", node_pool="gpu"))
    assert [one.subject for one in found] == ["a.b/gpu", "a.b/gpu-001", "a.b/gpu-1024"]


def test_pages_of_new_events_begin_with_the_oldest(filled: Store) -> None:
    with filled.reading() as session:
        assert [one.id for one in session.next_events(2, EVERY_EVENT)] == [1, 2]
        assert [one.id for one in session.next_events(2, EventFilter(after_id=2))] == [3, 4]
        assert [one.id for one in session.events(2)] == [3, 4]
        assert session.last_event_id() == 4


def test_changes_are_told_in_words(store: Store) -> None:
    assert store.read_only_reason is None
    with store.transaction() as session:
        session.add_event(
            EventKind.VM_STOPPED,
            "acme/web-1",
            before={"state": "running", "host": "gpu1", "hosts": ["a", "b"]},
            after={"state": "stopped", "problem": "none", "host": None, "hosts": []},
        )
        (event,) = session.events(1)
    assert event.changes == [
        "state: running → stopped",
        "host: gpu1 → nothing",
        "hosts: a, b → nothing",
        "problem: none",
    ]


def test_old_events_are_pruned_and_that_is_an_event(filled: Store) -> None:
    with filled.transaction() as session:
        pruned = session.prune_events(300.0, dry_run=True)
        assert (pruned.count, pruned.first_id, pruned.last_id) == (2, 1, 2)
        assert [one.id for one in session.events(None)] == [1, 2, 3, 4]
        session.prune_events(300.0)
        left = session.events(None)
    assert [one.id for one in left] == [3, 4, 5]
    assert (left[-1].kind, left[-1].before["events"]) == ("events-pruned", 2)
    assert left[-1].before["to"] == "1970-01-01T00:03:20Z"
    with filled.transaction() as session:
        assert session.prune_events(300.0).count == 0
        assert session.last_event_id() == 5, "nothing was pruned, so there is no event"


def test_a_pruned_file_refuses_as_before(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        with store.transaction() as session:
            session.add_event(EventKind.TENANT_CREATED, "acme", at=1.0)
            session.prune_events(2.0)
        with sqlite3.connect(tmp_path / "store.db") as other, pytest.raises(sqlite3.IntegrityError, match="only ever"):
            other.execute("DELETE FROM events")


@pytest.mark.parametrize("text", ["w\udcff", "\ud800"])
def test_a_text_that_is_no_utf_8_is_refused_in_words(store: Store, text: str) -> None:
    with pytest.raises(UsageError, match="is not UTF-8"), store.reading() as session:
        session.events(1, EventFilter((text,)))
    with pytest.raises(UsageError, match="is not UTF-8"), store.transaction() as session:
        session.add_tenant(text)
    with store.reading() as session:
        assert session.tenants() == []


def test_an_answer_of_a_host_is_in_an_event_whatever_its_bytes(store: Store) -> None:
    with store.transaction() as session:
        session.add_event(EventKind.GPU_HEALTH, "gpu1", after={"said": "w\udcff\0", "all": ["\ud800"]})
    with store.reading() as session:
        assert session.events(1)[0].after == {"said": r"w\udcff\x00", "all": [r"\ud800"]}
