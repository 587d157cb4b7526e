# SPDX-License-Identifier: Apache-2.0
"""The network functions that each host may have, as recorded, and how they compare with what a host says."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vgpuctl.errors import StateError
from vgpuctl.model.printable import printable
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.bgp_sessions import BGP, bgp_sessions
from vgpuctl.usecases.running.services import Services

_RECORD = "network-functions"


@dataclass(frozen=True)
class RecordedFunction:
    """A function that a host may have. digest: of what it was made from, "" while that is not known to have worked.

    problem: why it did not work.
    """

    kind: str
    tenant: str
    owner: str
    number: int
    chassis: str = ""
    digest: str = ""
    problem: str = ""

    @property
    def printed(self) -> str:
        """Its name for people: `load-balancer acme/shop, instance 1`."""
        return f"{self.kind} {self.tenant}/{self.owner}, instance {self.number}"


Records = Mapping[str, Mapping[str, RecordedFunction]]
"""Host → name of a function → its record."""


def recorded_functions(session: Session) -> Records:
    """Every host's functions, as recorded."""
    found = {}
    for record in session.host_records(_RECORD):
        rows: dict[str, dict[str, Any]] = json.loads(record.content)
        found[record.host] = {name: RecordedFunction(**row) for name, row in rows.items()}
    return found


def save_functions(session: Session, host: str, rows: Mapping[str, RecordedFunction]) -> None:
    """Record the functions of a host."""
    if not rows:
        session.drop_host_record(host, _RECORD)
        return
    session.save_host_record(host, _RECORD, json.dumps({name: asdict(one) for name, one in sorted(rows.items())}))


def problems_of(session: Session, tenant: str, kind: str, owner: str) -> Iterator[str]:
    """What hosts last said of an object's functions that they did not make or remove."""
    for host, rows in recorded_functions(session).items():
        for one in rows.values():
            if (one.tenant, one.kind, one.owner) == (tenant, kind, owner) and one.problem:
                yield f"instance {one.number} on {host} failed: {one.problem}; `vgpuctl repair` tries again"


def function_problems(services: Services, host: str) -> tuple[str, ...]:
    """What is wrong with the functions of a host that the records name. A host without any is not asked."""
    with services.store.reading() as session:
        rows = recorded_functions(session).get(host, {})
    if not rows:
        return ()
    found = {one.name: one for one in services.host(host).agent.functions().functions}
    problems = []
    for name, one in sorted(rows.items()):
        there = found.get(name)
        if one.problem:
            problems.append(f"{one.printed}: {one.problem}")
        elif there is None:
            problems.append(f"{one.printed} is not there")
        elif there.digest != one.digest:
            problems.append(f"{one.printed} is not what was made")
        elif there.problems:
            problems.append(f"{one.printed}: {printable('; '.join(there.problems))[:500]}")
        elif one.kind == BGP:
            problems += _bgp_problems(services, host, name, one)
    return tuple(problems)


def _bgp_problems(services: Services, host: str, name: str, speaker: RecordedFunction) -> Iterator[str]:
    """The sessions of a speaker that are down."""
    try:
        for session in bgp_sessions(services, host, name):
            if not session.is_up:
                yield f"{speaker.printed}: the session with {session.neighbour} is down ({session.state})"
    except StateError as error:
        yield f"{speaker.printed}: {error.message}"
