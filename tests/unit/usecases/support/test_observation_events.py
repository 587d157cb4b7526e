# SPDX-License-Identifier: Apache-2.0
"""The changes on a host that become events, and those that do not."""

from dataclasses import replace
from typing import Any

from tests.integration.store import samples
from tests.unit.fleet_factory import a40_host
from vgpuctl.errors import HostUnreachable, LibvirtMissing, VgpuctlError
from vgpuctl.guests.domain_facts import DomainState, NamedState
from vgpuctl.model.vm import VmState
from vgpuctl.usecases.support.observation_events import add_events
from vgpuctl.usecases.support.observation_record import (
    NEVER_LOOKED,
    Record,
    StoredRows,
    with_domains,
    with_facts,
    without_answer,
)

VM = replace(samples.vm(), state=VmState.RUNNING)
ROWS = StoredRows((VM,), ())
FACTS = a40_host("gpu1").facts
READ = with_facts(NEVER_LOOKED, FACTS, ROWS, 1000.0, before=None)


class _Events:
    """Collects the events that a session would add."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def add_event(self, kind: str, subject: str, detail: str, **_values: Any) -> None:
        self.told.append((str(kind), detail))


def told(before: Record, after: Record) -> list[tuple[str, str]]:
    session: Any = _Events()
    add_events(session, "gpu1", before, after, ROWS)
    found: list[tuple[str, str]] = session.told
    return found


def silent(before: Record, error: VgpuctlError) -> Record:
    return without_answer(before, error, 1010.0)


def listed(before: Record, state: DomainState, *, has_failed: bool = False) -> Record:
    return with_domains(before, {VM.uuid: NamedState(VM.domain_name, state, has_failed)}, ROWS, 1010.0)


def test_a_host_that_has_never_answered_is_no_change() -> None:
    assert told(NEVER_LOOKED, silent(NEVER_LOOKED, HostUnreachable("no route"))) == []
    kinds = [kind for kind, _detail in told(READ, silent(READ, HostUnreachable("no route")))]
    assert kinds == ["host-observed", "libvirt-observed"]
    assert told(READ, silent(READ, LibvirtMissing("no socket"))) == [("libvirt-observed", "no socket")]


def test_a_vm_that_crashed_is_told_from_one_that_was_ended() -> None:
    running = listed(READ, DomainState.RUNNING)
    ended = told(running, listed(running, DomainState.SHUT_OFF))
    crashed = told(running, listed(running, DomainState.SHUT_OFF, has_failed=True))
    assert ended == [("vm-observed", "declared running")]
    assert crashed == [("vm-observed", "declared running; neither its guest nor anybody else ended it")]
