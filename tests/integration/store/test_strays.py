# SPDX-License-Identifier: Apache-2.0
"""VMs that run on another host than the store says, as two looks at that host see them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integration.store.conftest import Clock
from vgpuctl.errors import HostUnreachable, StateError
from vgpuctl.guests.facts.domain_facts import DomainState, NamedState
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.model.vm import Vm, VmRequest, VmState, came_live_from, has_moved
from vgpuctl.store.store import Store
from vgpuctl.usecases.observed.observations import note_answers
from vgpuctl.usecases.observed.states import read_states
from vgpuctl.usecases.observed.strays import refuse_second_start, strays_by_host

WEB = Vm("web", VmRequest("web", "acme"), "gpu1", VmState.RUNNING)


@pytest.fixture(autouse=True)
def vm(store: Store) -> None:
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_vm(WEB)


def _look(store: Store, clock: Clock, state: DomainState | None, *, host: str = "gpu2", uuid: str = "web") -> list[str]:
    """Note a look at a host. Returns the events since the test began, each with the state after it."""
    clock.now += 10
    with store.transaction() as session:
        note_answers(session, host, domains={} if state is None else {uuid: NamedState("acme.web", state)})
    with store.reading() as session:
        return [f"{one.subject} {one.host} {one.after['state']}" for one in session.events(10) if one.host == "gpu2"]


def _unknown(store: Store) -> list[str]:
    with store.reading() as session:
        rows = read_states(session).of("truth_mismatch")
    return [f"{row.labels[0]} {row.text}" for row in rows if row.labels[1] == "domain-unknown" and row.value]


def test_the_second_look_is_an_event_and_a_mismatch_and_so_is_the_end(store: Store, clock: Clock) -> None:
    assert (_look(store, clock, DomainState.RUNNING), _unknown(store)) == ([], [])
    assert (_look(store, clock, DomainState.PAUSED), _unknown(store)) == (["acme/web gpu2 paused"], ["gpu2 acme.web"])
    assert len(_look(store, clock, DomainState.RUNNING)) == 1
    assert sorted(_look(store, clock, DomainState.SHUT_OFF)) == ["acme/web gpu2 gone", "acme/web gpu2 paused"]
    assert _unknown(store) == []
    with store.reading() as session:
        assert strays_by_host(session) == {}


@pytest.mark.parametrize(
    ("host", "uuid", "state", "subject"),
    [
        ("gpu1", "web", DomainState.RUNNING, None),
        ("gpu2", "other", DomainState.RUNNING, None),
        ("gpu2", "web", DomainState.SHUT_OFF, None),
        ("gpu2", "web", DomainState.CRASHED, None),
        ("gpu2", "web", DomainState.RUNNING, "web"),
        ("gpu2", "web", DomainState.RUNNING, "move:web"),
    ],
    ids=["its own host", "no VM of the store", "off", "crashed", "a command works on it", "it is moved"],
)
def test_what_is_no_stray(
    host: str, uuid: str, state: DomainState, subject: str | None, store: Store, clock: Clock
) -> None:
    if subject is not None:
        with store.transaction() as session:
            session.begin_operation("move-vm", subject)
    for _look_again in range(3):
        assert _look(store, clock, state, host=host, uuid=uuid) == []
    with store.reading() as session:
        assert strays_by_host(session) == {}


def test_a_stray_whose_vm_is_on_that_host_by_now_ends_without_an_event(store: Store, clock: Clock) -> None:
    _look(store, clock, DomainState.RUNNING)
    assert len(_look(store, clock, DomainState.RUNNING)) == 1
    with store.transaction() as session:
        session.delete_vm("web")
    assert len(_look(store, clock, DomainState.RUNNING)) == 1
    with store.reading() as session:
        assert strays_by_host(session) == {}


class Hosts:
    """Services on gpu1, where no domain of the VM is, and on gpu2 and gpu3, which do not answer."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.inventory = SimpleNamespace(select=lambda _patterns: ["gpu1", "gpu2", "gpu3"])
        self.said: list[str] = []
        self.say = self.said.append

    def on_hosts(self, names: list[str], _ask: object) -> list[Any]:
        return [SimpleNamespace(name=one, error=HostUnreachable(f"no answer from {one}"), value=None) for one in names]


def _was(store: Store, *kinds: EventKind) -> None:
    for kind in kinds:
        before = {"host": "gpu2"} if kind in (EventKind.VM_MOVED, EventKind.VM_MOVED_LIVE) else {}
        with store.transaction() as session:
            session.add_vm_event(kind, WEB, before=before, after={"host": "gpu1"})


@pytest.mark.parametrize(
    ("vm", "kinds", "noted"),
    [
        (WEB, [EventKind.VM_MOVED_LIVE], "it was there until 2023-11-14 22:13 UTC"),
        (WEB, [EventKind.VM_MOVED_LIVE, EventKind.VM_STARTED], "it was there until"),
        (WEB, [EventKind.VM_MOVED, EventKind.VM_STARTED], "it was there until"),
        (replace(WEB, problem=came_live_from("gpu2")), [], "it came live from gpu2"),
        (
            replace(WEB, state=VmState.STOPPED, problem="its guest powered off"),
            [EventKind.VM_MOVED_LIVE],
            "it was there",
        ),
    ],
    ids=["moved live", "and started again", "moved cold and started", "its move has not ended", "off since"],
)
def test_a_vm_does_not_start_while_a_silent_host_may_run_it(
    vm: Vm, kinds: list[EventKind], noted: str, store: Store
) -> None:
    _was(store, EventKind.VM_CREATED, *kinds)
    services: Any = Hosts(store)
    with pytest.raises(
        StateError, match=f"acme/web may run on gpu2, .* gpu1 has no domain of it, and {noted}"
    ) as refused:
        refuse_second_start(services, vm, None)
    assert "`vgpuctl evacuate-host gpu2 --reason TEXT`" in str(refused.value.hint)
    refuse_second_start(services, vm, DomainState.SHUT_OFF)
    with store.transaction() as session:
        session.restrict("gpu2", WHOLE_HOST, RestrictionKind.FENCE, "dead")
    refuse_second_start(services, vm, None)


@pytest.mark.parametrize(
    ("vm", "kinds"),
    [
        (WEB, []),
        (WEB, [EventKind.VM_MOVED]),
        (WEB, [EventKind.VM_MOVED_LIVE, EventKind.VM_CREATED]),
        (replace(WEB, state=VmState.STOPPED, problem=has_moved("gpu2")), [EventKind.VM_MOVED]),
    ],
    ids=["was always here", "came while it was off", "another VM of its name was there", "its old copies are left"],
)
def test_a_silent_host_that_cannot_have_it_keeps_no_vm_from_its_start(
    vm: Vm, kinds: list[EventKind], store: Store
) -> None:
    _was(store, *kinds)
    services: Any = Hosts(store)
    refuse_second_start(services, vm, None)
    assert all("not known whether it runs on" in one for one in services.said)
