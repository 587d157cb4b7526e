# SPDX-License-Identifier: Apache-2.0
"""VMs that run on another host than the store says, as two looks at that host see them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integration.store.conftest import Clock
from vgpuctl.errors import HostUnreachable, StateError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState, NamedState
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.model.vm import (
    RESTARTING,
    Vm,
    VmRequest,
    VmState,
    came_live_from,
    has_moved,
    in_resize,
    on_its_way,
)
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
    """Services on gpu1, where no domain of the VM is, gpu2, and gpu3. there: the state of its domain on gpu2.

    gpu2 does not answer where that is None, and gpu3 never does.
    """

    def __init__(self, store: Store, there: DomainState | None = None, *, goes_on: bool = False) -> None:
        self.store = store
        self.inventory = SimpleNamespace(select=lambda _patterns: ["gpu1", "gpu2", "gpu3"])
        self.there = there
        self.goes_on = goes_on
        self.said: list[str] = []
        self.say = self.said.append
        self.noted: list[str] = []

    def note_silent(self, name: str, _error: VgpuctlError) -> None:
        self.noted.append(name)

    def on_hosts(self, names: list[str], _ask: object) -> list[Any]:
        return [
            SimpleNamespace(name=one, error=None, value=self.there)
            if one == "gpu2" and self.there is not None
            else SimpleNamespace(name=one, error=HostUnreachable(f"{one}: no answer"), value=None)
            for one in names
        ]


def _was(store: Store, *kinds: EventKind) -> None:
    for kind in kinds:
        before = {"host": "gpu2"} if kind in (EventKind.VM_MOVED, EventKind.VM_MOVED_LIVE) else {}
        with store.transaction() as session:
            session.add_vm_event(kind, WEB, before=before, after={"host": "gpu1"})


def _stopped(problem: str | None) -> Vm:
    return replace(WEB, state=VmState.STOPPED, problem=problem)


@pytest.mark.parametrize(
    ("vm", "kinds"),
    [
        (WEB, []),
        (WEB, [EventKind.VM_CREATED]),
        (WEB, [EventKind.VM_CREATED, EventKind.VM_MOVED_LIVE]),
        (WEB, [EventKind.VM_MOVED, EventKind.VM_STARTED]),
        (WEB, [EventKind.VM_MOVED, EventKind.VM_CREATED]),
        (replace(WEB, problem=came_live_from("gpu2")), [EventKind.VM_MOVED_LIVE]),
        (_stopped("its guest powered off"), [EventKind.VM_CREATED]),
        (_stopped(in_resize("gpu1")), [EventKind.VM_CREATED]),
        (_stopped(RESTARTING), [EventKind.VM_CREATED]),
    ],
    ids=[
        "its events are gone",
        "was always here",
        "moved live",
        "moved cold and started",
        "another VM of its name moved cold",
        "its live move has not ended",
        "ended by itself",
        "was cut short in a resize",
        "was cut short in a restart",
    ],
)
def test_a_vm_whose_domain_is_gone_does_not_start_while_any_host_is_silent(
    vm: Vm, kinds: list[EventKind], store: Store
) -> None:
    _was(store, *kinds)
    services: Any = Hosts(store)
    with pytest.raises(
        StateError, match="acme/web may run on gpu2, gpu3, which do not answer: gpu1 has no domain of it any more"
    ) as refused:
        refuse_second_start(services, vm, None)
    assert refused.value.context == ("gpu2: no answer", "gpu3: no answer")
    assert "`vgpuctl evacuate-host gpu2 --reason TEXT`" in str(refused.value.hint)
    refuse_second_start(services, vm, DomainState.SHUT_OFF)
    with store.transaction() as session:
        session.restrict("gpu2", WHOLE_HOST, RestrictionKind.FENCE, "dead")
    with pytest.raises(StateError, match="acme/web may run on gpu3, which does not answer"):
        refuse_second_start(services, vm, None)
    with store.transaction() as session:
        session.restrict("gpu3", WHOLE_HOST, RestrictionKind.FENCE, "dead")
    refuse_second_start(services, vm, None)
    assert services.said == []


_COLD = [
    (WEB, [EventKind.VM_CREATED, EventKind.VM_MOVED]),
    (_stopped(None), [EventKind.VM_CREATED, EventKind.VM_MOVED]),
    (_stopped(None), [EventKind.VM_CREATED, EventKind.VM_FOUND]),
    (_stopped(on_its_way("gpu2", "gpu1")), []),
    (_stopped(on_its_way("gpu1", "gpu2")), [EventKind.VM_CREATED]),
    (_stopped(has_moved("gpu2")), [EventKind.VM_MOVED]),
]


@pytest.mark.parametrize(("vm", "kinds"), _COLD)
def test_a_vm_that_a_cold_move_brought_starts_though_hosts_are_silent(
    vm: Vm, kinds: list[EventKind], store: Store
) -> None:
    _was(store, *kinds)
    services: Any = Hosts(store)
    refuse_second_start(services, vm, None)
    assert services.said == [f"acme/web: not known whether it runs on {one}: no answer" for one in ("gpu2", "gpu3")]
    assert services.noted == ["gpu2", "gpu3"]


def test_so_does_one_that_was_renamed_since(store: Store) -> None:
    _was(store, EventKind.VM_CREATED, EventKind.VM_MOVED)
    with store.transaction() as session:
        session.rename_vm(WEB, "front", domain="acme.front")
    with store.reading() as session:
        (front,) = session.vms()
    services: Any = Hosts(store)
    refuse_second_start(services, front, None)
    with store.transaction() as session:
        session.add_vm_event(EventKind.VM_STARTED, front)
        session.rename_vm(front, "web", domain="acme.web")
    with store.reading() as session:
        (web,) = session.vms()
    with pytest.raises(StateError, match="acme/web may run on gpu2, gpu3"):
        refuse_second_start(services, web, None)


@pytest.mark.parametrize(("vm", "kinds"), [*_COLD, (_stopped(RESTARTING), []), (_stopped(in_resize("gpu1")), [])])
def test_a_copy_that_runs_elsewhere_keeps_every_vm_without_a_domain_from_its_start(
    vm: Vm, kinds: list[EventKind], store: Store
) -> None:
    _was(store, *kinds)
    services: Any = Hosts(store, DomainState.RUNNING)
    with pytest.raises(StateError, match="acme/web would run twice: the store has it on gpu1, and on gpu2 domain"):
        refuse_second_start(services, vm, None)


def test_a_dry_run_of_a_cold_move_does_not_find_the_vm_that_it_has_not_stopped(store: Store) -> None:
    services: Any = Hosts(store, DomainState.RUNNING, goes_on=True)
    refuse_second_start(services, _stopped(on_its_way("gpu2", "gpu1")), None)
    assert services.noted == services.said == [], "it asks no host"
