# SPDX-License-Identifier: Apache-2.0
"""The queue in the store, and many controllers on it."""

import signal
import time
from dataclasses import replace

import pytest

from tests.integration.store import racers
from tests.integration.store.conftest import Clock
from tests.integration.store.samples import full_request, vm
from tests.integration.store.test_store_concurrency import LIMIT_S, Race, run_race
from vgpuctl.errors import ConcurrentChange, NotFound
from vgpuctl.model.queue import QueueKind, QueuePolicy, QueueSettings
from vgpuctl.model.vm import Preemption, VmRequest, VmState
from vgpuctl.store.store import Store


@pytest.fixture
def filled(url: str, store: Store) -> str:
    with store.transaction() as session:
        session.add_tenant("acme")
        for number in range(24):
            session.join_queue(QueueKind.CREATE, VmRequest(f"vm-{number}", "acme"))
    return url


def test_an_entry_comes_back_as_it_was_queued(store: Store, clock: Clock) -> None:
    request = full_request()
    with store.transaction() as session:
        session.add_tenant("acme")
        session.join_queue(QueueKind.CREATE, request, "no room for \0 umbrella/x")
        (entry,) = session.queue()
        assert session.queued("acme", "web-1") == entry
        assert session.queued("acme", "web-2") is None
        session.note_in_queue(entry.id, "no room", "no-capacity")
        assert session.queue()[0].reason == "no room"
    assert (entry.kind, entry.request, entry.queued_at) == (QueueKind.CREATE, request, clock.now)
    assert entry.reason == "no room for \\x00 umbrella/x"
    with pytest.raises(ConcurrentChange, match="waits in the queue already"), store.transaction() as session:
        session.join_queue(QueueKind.CREATE, request)
    with store.transaction() as session:
        assert session.leave_queue(entry.id)
        assert not session.leave_queue(entry.id)
        with pytest.raises(NotFound):
            session.join_queue(QueueKind.CREATE, VmRequest("x", "nobody"))


def test_vms_that_are_created_together_wait_as_one(store: Store) -> None:
    gang = [replace(full_request(), name=f"web-{number}") for number in range(3)]
    with store.transaction() as session:
        session.add_tenant("acme")
        session.join_queue(QueueKind.CREATE, VmRequest("alone", "acme"))
        session.join_queue(QueueKind.GANG, gang[0], "no room", others=gang[1:], may_preempt=True)
        alone, entry = session.queue()
        assert (alone.may_preempt, entry.may_preempt) == (False, True)
        assert (alone.others, entry.requests, entry.name) == ((), tuple(gang), "acme/web-0, web-1, web-2")
        assert [session.queued("acme", name) for name in ("web-0", "web-2", "alone")] == [entry, entry, alone]
    with pytest.raises(ConcurrentChange, match="VM alone of tenant acme waits"), store.transaction() as session:
        session.join_queue(QueueKind.GANG, VmRequest("new", "acme"), others=[VmRequest("alone", "acme")])
    with store.transaction() as session:
        assert session.leave_queue(entry.id)
        assert [one.name for one in session.queue()] == ["acme/alone"]


def test_a_vm_that_is_gone_waits_for_no_start(store: Store) -> None:
    vms = [vm(f"web-{number}") for number in range(3)]
    with store.transaction() as session:
        session.add_tenant("acme")
        for one in vms:
            session.add_vm(one)
            session.set_vm_state(one.uuid, VmState.STOPPED)
        first, *others = [one.request for one in vms]
        session.join_queue(QueueKind.START_GANG, first, others=others)
        session.delete_vm(vms[0].uuid)
        assert [one.name for one in session.queue()] == ["acme/web-1, web-2"]
        session.set_vm_state(vms[1].uuid, VmState.RUNNING)
        assert [one.name for one in session.queue()] == ["acme/web-2"]
        session.set_vm_state(vms[2].uuid, VmState.DELETING)
        assert session.queue() == []
        with pytest.raises(NotFound, match="VM web-0 of tenant acme is not in the store"):
            session.join_queue(QueueKind.START, first)
        session.join_queue(QueueKind.CREATE, vms[2].request)
        session.delete_vm(vms[2].uuid)
        assert [one.name for one in session.queue()] == ["acme/web-2"], "a creation that was rolled back still waits"


def test_an_entry_that_is_being_served_stays_with_its_controller(store: Store) -> None:
    stopped = vm()
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_vm(stopped)
        session.set_vm_state(stopped.uuid, VmState.STOPPED)
        session.join_queue(QueueKind.START, stopped.request)
        (entry,) = session.queue()
    with store.claim(entry) as claim:
        assert claim is not None
        with store.transaction() as session:
            session.set_vm_state(stopped.uuid, VmState.RUNNING)
            assert session.queue() == [entry]
        with pytest.raises(ConcurrentChange, match=r"just starting acme/web-1"), store.transaction() as session:
            session.leave_queue(entry.id)
        claim.done()
    with store.reading() as session:
        assert session.queue() == []


def test_queue_settings_are_kept(store: Store) -> None:
    wanted = QueueSettings(QueuePolicy.FAIR_SHARE, 90.5)
    with store.transaction() as session:
        assert session.queue_settings() == QueueSettings()
        session.set_queue_settings(QueueSettings(QueuePolicy.PRIORITY))
        session.set_queue_settings(wanted)
        assert session.queue_settings() == wanted


def test_a_declared_time_begins_when_the_vm_runs_and_is_none_while_it_is_stopped(store: Store, clock: Clock) -> None:
    created = vm()
    limited = type(created)(
        created.uuid,
        VmRequest("web-1", "acme", duration_s=60.0, preemptible=Preemption.REQUEUE),
        "gpu1",
        VmState.CREATING,
    )
    begin = clock.now
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_vm(limited)
        assert session.vms()[0].ends_at is None
        for later, state, ends_at in ((5, VmState.RUNNING, 65), (9, VmState.RUNNING, 65), (10, VmState.STOPPED, None),
                                      (20, VmState.RUNNING, 80)):  # fmt: skip
            clock.now = begin + later
            session.set_vm_state(created.uuid, state)
            assert session.vms()[0].ends_at == (None if ends_at is None else begin + ends_at)
        session.set_vm_state(created.uuid, VmState.STOPPED, kept_until=begin + 500)
        assert session.vms()[0].ends_at == begin + 500
        session.set_vm_state(created.uuid, VmState.RUNNING)
        assert session.vms()[0].ends_at == begin + 80


def test_many_controllers_serve_each_entry_once(store: Store, filled: str) -> None:
    served = [name for answer in run_race(racers.serve_queue, filled) for name in answer]
    assert sorted(served) == sorted(f"acme/vm-{number}" for number in range(24))
    with store.reading() as session:
        assert session.queue() == []
        assert session.open_operations() == []


def test_a_killed_controller_loses_nothing_and_holds_nothing(store: Store, filled: str) -> None:
    race = Race(racers.die_while_serving, filled, count=1, spectators=1)
    assert race.answer() == "serving"
    with store.reading() as session:
        first = session.queue()[0]
    with store.claim(first) as claim:
        assert claim is None, "two serve the same entry"
    race.barrier.wait(LIMIT_S)
    assert race.end() == [-signal.SIGKILL]
    give_up = time.monotonic() + LIMIT_S
    while True:  # PostgreSQL notices that the connection is gone
        with store.claim(first) as claim:
            if claim is not None:
                claim.done()
                break
        assert time.monotonic() < give_up, "a dead controller still holds its entry"
        time.sleep(0.02)
    with store.reading() as session:
        assert len(session.queue()) == 23
    with store.claim(first) as claim:
        assert claim is None
