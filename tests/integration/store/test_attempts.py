# SPDX-License-Identifier: Apache-2.0
"""Attempts that fail by a command's own settings: they are told beside what is known, which they change after long."""

from dataclasses import replace

import pytest

from tests.integration.store import samples
from tests.integration.store.conftest import Clock
from tests.unit.fleet_factory import a40_host
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.errors import (
    AuthenticationFailed,
    BecomeFailed,
    CommandTimedOut,
    HostKeyChanged,
    HostKeyUnknown,
    HostUnreachable,
    InventoryError,
    PythonMissing,
    VgpuctlError,
    WayFailed,
    WrongHost,
)
from vgpuctl.guests.facts.domain_facts import DomainState, NamedState
from vgpuctl.model.promise import FRESH_S
from vgpuctl.model.vm import VmState
from vgpuctl.model.way import Way
from vgpuctl.store.store import Store
from vgpuctl.usecases.observed.observations import note_answers, observations, observed_hosts, readings_in_words
from vgpuctl.usecases.observed.states import read_states

WAY = Way("root@10.0.0.1 port 22; python auto", ("ssh-ed25519", "SHA256:of-gpu1"))
ELSEWHERE = Way("root@10.0.0.99 port 2222; python auto")
FACTS = a40_host("gpu1").facts
VM = replace(samples.vm(host="gpu1"), state=VmState.RUNNING)
OWN: list[tuple[VgpuctlError, Way | None]] = [
    (AuthenticationFailed("gpu1 refuses to log in root"), WAY),
    (HostUnreachable("connection refused"), ELSEWHERE),
    (HostKeyUnknown("not in known_hosts"), WAY),
    (HostKeyChanged("another than in known_hosts:3", shown=("ssh-ed25519", "SHA256:of-gpu1")), WAY),
    (BecomeFailed("sudo wants a password"), WAY),
    (WayFailed("the name gpu1 cannot be resolved"), WAY),
    (InventoryError("ansible_port: abc"), None),
    (PythonMissing("no /opt/pyton"), ELSEWHERE),
    (WrongHost("the machine that answers is gpu2"), ELSEWHERE),
    (CommandTimedOut("no answer for 15 s"), ELSEWHERE),
]


def answer(store: Store) -> None:
    domains = {VM.uuid: NamedState(VM.domain_name, DomainState.RUNNING)}
    with store.transaction() as session:
        note_answers(session, "gpu1", facts=FACTS, domains=domains, way=WAY)


def fail(store: Store, error: VgpuctlError, way: Way | None, *, age_s: float = 0.0) -> None:
    with store.transaction() as session:
        note_answers(session, "gpu1", errors=(error,), way=way, age_s=age_s)


def host_state(store: Store) -> tuple[str, str]:
    with store.reading() as session:
        states = read_states(session, of=("host", "vm", "gpu"))
        (row,) = states.of("host_state")
        return row.states[0], row.text


def words(store: Store) -> str:
    with store.reading() as session:
        return readings_in_words(session, ["gpu1"])["gpu1"]


@pytest.mark.parametrize(("error", "way"), OWN, ids=lambda one: getattr(one, "message", None))
def test_one_attempt_in_vain_is_told_and_changes_nothing(
    error: VgpuctlError, way: Way | None, store: Store, clock: Clock
) -> None:
    answer(store)
    with store.reading() as session:
        before = observed_hosts(session)
    clock.now += 3 * 86400 - 300
    fail(store, error, way)
    clock.now += 300
    assert words(store) == f"up, 3d ago; tried 5m ago: {error.message}"
    assert host_state(store) == ("stale", f"tried in vain: {error.message}")
    with store.reading() as session:
        assert observed_hosts(session) == before


@pytest.mark.parametrize(("error", "way"), OWN[:2], ids=["the login is refused", "another address"])
def test_a_host_that_every_attempt_has_missed_for_long_is_up_no_more(
    error: VgpuctlError, way: Way | None, store: Store, clock: Clock
) -> None:
    with store.transaction() as session:
        session.add_tenant(VM.request.tenant)
        session.add_vm(VM)
    answer(store)
    clock.now += 20
    fail(store, error, way)
    clock.now += FRESH_S - 1
    fail(store, error, way)
    assert host_state(store)[0] == "stale"
    clock.now += 1
    fail(store, error, way)
    assert host_state(store) == ("not-reached", error.message)
    with store.reading() as session:
        seen = observed_hosts(session)["gpu1"]
        vm = observations(session, [VM])[VM.uuid]
        assert session.events(10) == [], "an own failure is no outage"
    assert (seen.state, seen.agent.known_state, vm.known_state, vm.state) == ("not-reached", None, None, "running")
    assert {one.known_state for one in seen.gpus.values()} == {None}
    assert words(store).startswith("unknown since ")
    answer(store)
    assert host_state(store) == ("up", "")
    assert words(store) == "up, 0s ago"


def test_a_host_that_nobody_asks_is_stale_and_not_up(store: Store, clock: Clock) -> None:
    answer(store)
    clock.now += FRESH_S
    assert host_state(store) == ("up", "")
    clock.now += 1
    assert host_state(store) == ("stale", "")
    with store.reading() as session:
        read = read_states(session, of=("host",), readings={"gpu1": HostReadings("boot", clock.now, 1.0)})
        assert [row.states for row in read.of("host_state")] == [("up",)], "the exporter has just read it"
    answer(store)
    assert host_state(store) == ("up", "")


def test_an_answer_between_two_attempts_begins_the_time_anew(store: Store, clock: Clock) -> None:
    answer(store)
    for _ in range(3):
        clock.now += FRESH_S
        fail(store, *OWN[0])
        clock.now += 1
        answer(store)
        clock.now += 1
        fail(store, *OWN[0])
        assert host_state(store)[0] == "up"


def test_an_attempt_that_began_before_the_answer_is_none(store: Store, clock: Clock) -> None:
    answer(store)
    clock.now += 5
    fail(store, *OWN[0], age_s=10)
    assert words(store) == "up, 5s ago"


def test_a_host_that_was_down_before_its_login_was_changed_stays_down(store: Store, clock: Clock) -> None:
    answer(store)
    clock.now += 60
    fail(store, HostUnreachable("no route"), WAY)
    clock.now += 60
    fail(store, *OWN[1])
    clock.now += FRESH_S
    fail(store, *OWN[1])
    assert host_state(store) == ("unreachable", "no route")
    assert words(store).endswith("up 12m ago; tried 0s ago: connection refused")


def test_of_a_host_that_never_answered_no_attempt_is_kept(store: Store) -> None:
    for error, _way in OWN[:-1]:
        fail(store, error, ELSEWHERE)
    with store.reading() as session:
        assert session.recorded_hosts() == {}
