# SPDX-License-Identifier: Apache-2.0
"""The changes on a host that become events, and those that do not."""

from dataclasses import replace
from typing import Any

from msgspec.structs import replace as replace_struct

from tests.integration.store import samples
from tests.unit.fleet_factory import a40_host
from vgpuctl.errors import HostUnreachable, LibvirtMissing, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState, NamedState
from vgpuctl.model.faults import FAULTS, FaultId
from vgpuctl.model.health import HealthCode
from vgpuctl.model.vm import VmState
from vgpuctl.model.way import Way
from vgpuctl.usecases.observed.observation_events import add_events
from vgpuctl.usecases.observed.observation_record import (
    NEVER_LOOKED,
    Record,
    StoredRows,
    with_domains,
    with_facts,
    with_way,
    without_answer,
)

VM = replace(samples.vm(), state=VmState.RUNNING)
ROWS = StoredRows((VM,), ())
FACTS = a40_host("gpu1").facts
WAY = Way("root@10.0.0.1 port 22; python auto")
READ = with_way(with_facts(NEVER_LOOKED, FACTS, ROWS, 1000.0, before=None), WAY)


class _Events:
    """Collects the events that a session would add."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.evidence: dict[str, Any] = {}

    def add_event(self, kind: str, subject: str, detail: str, **values: Any) -> None:
        self.told.append((str(kind), detail))
        self.evidence[str(kind)] = values["evidence"]


def told(before: Record, after: Record) -> list[tuple[str, str]]:
    session: Any = _Events()
    add_events(session, "gpu1", before, after, ROWS)
    found: list[tuple[str, str]] = session.told
    return found


def evidence(before: Record, after: Record) -> dict[str, Any]:
    """The evidence of each event, by its kind."""
    session: Any = _Events()
    add_events(session, "gpu1", before, after, ROWS)
    found: dict[str, Any] = session.evidence
    return found


def silent(before: Record, error: VgpuctlError) -> Record:
    return without_answer(before, error, 1010.0, way=WAY)


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


def _of(fault: FaultId | HealthCode) -> dict[str, str]:
    return {"finding": str(fault), "remedy": FAULTS[fault].remedy}


def test_a_change_for_the_worse_has_the_id_and_the_remedy_of_its_alert() -> None:
    unreachable = silent(READ, HostUnreachable("no route"))
    assert evidence(READ, unreachable)["host-observed"] == _of(FaultId.HOST_UNREACHABLE)
    drifted = replace_struct(READ, layout=("vgpus: declared none, is 1",))
    assert evidence(READ, drifted) == {"layout-observed": _of(FaultId.LAYOUT_DIFFERS)}
    running = listed(READ, DomainState.RUNNING)
    ended = listed(running, DomainState.SHUT_OFF)
    assert evidence(running, ended) == {"vm-observed": _of(FaultId.TRUTH_MISMATCH)}
    without = with_facts(READ, replace(FACTS, gpus=()), ROWS, 1010.0, before=FACTS)
    assert evidence(READ, without)["gpu-observed"] == _of(HealthCode.GPU_MISSING)


def test_a_change_for_the_better_is_no_fault() -> None:
    ended = listed(listed(READ, DomainState.RUNNING), DomainState.SHUT_OFF)
    assert evidence(ended, listed(ended, DomainState.RUNNING)) == {"vm-observed": {}}
    drifted = replace_struct(READ, layout=("vgpus: declared none, is 1",))
    assert evidence(drifted, replace_struct(drifted, layout=())) == {"layout-observed": {}}
    back = with_facts(silent(READ, HostUnreachable("no route")), FACTS, ROWS, 1020.0, before=FACTS)
    assert evidence(silent(READ, HostUnreachable("no route")), back)["host-observed"] == {}
