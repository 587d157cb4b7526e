# SPDX-License-Identifier: Apache-2.0
"""VMs that run on another host than the store says, as two looks at that host see them."""

import pytest

from tests.integration.store.conftest import Clock
from vgpuctl.guests.facts.domain_facts import DomainState, NamedState
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.store.store import Store
from vgpuctl.usecases.observed.observations import note_answers
from vgpuctl.usecases.observed.states import read_states
from vgpuctl.usecases.observed.strays import strays_by_host

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
