# SPDX-License-Identifier: Apache-2.0
"""Bring hosts' network functions to what the store says, and find those that no object of the store has.

A record of each host names the functions that it may have: it is written before a function is made and after one is
gone. So a change of a tenant contacts only the hosts that differ, and a killed run is finished by `repair`.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from vgpuctl.agent.wire.network_function import FunctionFacts, NetworkFunction, SetNetworkFunction, digest_of
from vgpuctl.errors import HostError, NotFound, VgpuctlError
from vgpuctl.model.network_function import FunctionPlace, PlacedFunction
from vgpuctl.model.printable import printable
from vgpuctl.model.vpc import Vpc
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.chassis_hosts import hosts_of
from vgpuctl.usecases.network.function_kinds import FUNCTION_KINDS
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
    digest: str = ""
    problem: str = ""


Records = Mapping[str, Mapping[str, RecordedFunction]]
"""Host → name of a function → its record."""


@dataclass(frozen=True)
class Wanted:
    """The functions that hosts are to have. by_host: host → name → function. problems: places without a function."""

    by_host: Mapping[str, Mapping[str, PlacedFunction]]
    problems: tuple[tuple[FunctionPlace, str], ...]


def recorded_functions(session: Session) -> Records:
    """Every host's functions, as recorded."""
    found = {}
    for record in session.host_records(_RECORD):
        rows: dict[str, dict[str, Any]] = json.loads(record.content)
        found[record.host] = {name: RecordedFunction(**row) for name, row in rows.items()}
    return found


def wanted_functions(services: Services, session: Session, vpcs: Sequence[Vpc]) -> Wanted:
    """The functions of some tenants, by host. A function that cannot be made is a problem of its place."""
    places = [(vpc, place) for vpc in vpcs for place in vpc.functions]
    if not places:
        return Wanted({}, ())
    hosts = hosts_of(services, {place.chassis for _vpc, place in places if place.chassis})
    by_host: dict[str, dict[str, PlacedFunction]] = {}
    problems = []
    for vpc, place in places:
        host = hosts.get(place.chassis)
        if host is None:
            why = f"no host of the inventory is chassis {place.chassis}" if place.chassis else "no chassis can have it"
            problems.append((place, why))
            continue
        try:
            made = FUNCTION_KINDS[place.kind].make(session, vpc, place)
        except VgpuctlError as error:
            problems.append((place, error.message))
            continue
        by_host.setdefault(host, {})[place.name] = PlacedFunction(place, made)
    return Wanted(by_host, tuple(problems))


def bring_functions(services: Services, vpcs: Sequence[Vpc], *, dry_run: bool = False) -> list[str]:
    """Bring the functions of some tenants to what the store says, on the hosts whose records differ.

    Returns what was done in words. A host that refuses or does not answer stops no other: its record keeps the problem,
    the user is told, and `repair` tries again.
    """
    tenants = {vpc.tenant for vpc in vpcs}
    with services.store.reading() as session:
        records = recorded_functions(session)
        if not any(vpc.functions for vpc in vpcs) and not _of_tenants(records, tenants):
            return []
        wanted = wanted_functions(services, session, vpcs)
    for place, why in wanted.problems:
        services.say(f"{place.printed} does not run: {why}")
    done = []
    for host in sorted({*wanted.by_host, *_of_tenants(records, tenants)}):
        there = records.get(host, {})
        here = wanted.by_host.get(host, {})
        steps: dict[str, NetworkFunction | None] = {
            name: None for name, one in there.items() if one.tenant in tenants and name not in here
        }
        for name, placed in here.items():
            if name not in there or there[name].digest != digest_of(placed.function):
                steps[name] = placed.function
        done += _take(services, host, steps, here, dry_run=dry_run)
    return done


def repair_functions(services: Services, vpcs: Sequence[Vpc], *, dry_run: bool) -> Iterator[tuple[str, str, str, str]]:
    """Compare every host that has functions, or is to have some, with the store: (function, host, found, outcome)."""
    with services.store.reading() as session:
        records = recorded_functions(session)
        wanted = wanted_functions(services, session, vpcs)
    for place, why in wanted.problems:
        yield place.printed, place.chassis, "network function does not run", f"failed: {why}"
    for host in sorted({*wanted.by_host, *records}):
        here = wanted.by_host.get(host, {})
        try:
            found = {one.name: one for one in services.host(host).agent.functions().functions}
        except VgpuctlError as error:
            services.forget_host(host)
            for name in {*here, *records.get(host, {})}:
                yield name, host, "network function was not looked at", f"failed: {error.message}"
            continue
        for name, why in compare(here, records.get(host, {}), found).items():
            function = here[name].function if name in here else None
            _take(services, host, {name: function}, here, dry_run=dry_run)
            with services.store.reading() as session:
                record = recorded_functions(session).get(host, {}).get(name)
            outcome = f"failed: {record.problem}" if record is not None and record.problem else "finished"
            yield name, host, why, "would be finished" if dry_run else outcome


def compare(
    wanted: Mapping[str, PlacedFunction], recorded: Collection[str], found: Mapping[str, FunctionFacts]
) -> dict[str, str]:
    """What differs on a host, by the name of the function. Functions that no record of ours names are left to gc."""
    differences = {}
    for name, placed in wanted.items():
        there = found.get(name)
        if there is None:
            differences[name] = f"{placed.place.printed} is not there"
        elif there.digest != digest_of(placed.function):
            differences[name] = f"{placed.place.printed} is not as the store says"
        elif there.problems:
            differences[name] = f"{placed.place.printed}: {printable('; '.join(there.problems))[:500]}"
    for name in recorded:
        if name not in wanted:
            differences[name] = f"network function {name} is of no object of the store any more"
    return differences


def missing_programs(services: Services, vpcs: Sequence[Vpc]) -> list[str]:
    """Why hosts cannot have a function that is to be made there: one sentence a host. Hosts are asked, not changed."""
    needs: dict[str, set[str]] = {}
    with services.store.reading() as session:
        wanted = wanted_functions(services, session, vpcs)
    for host, functions in wanted.by_host.items():
        for placed in functions.values():
            needs.setdefault(host, set()).update(FUNCTION_KINDS[placed.place.kind].needs)
    found = []
    for host, names in sorted(needs.items()):
        missing = sorted(names - set(services.host(host).agent.functions().programs))
        if missing:
            found.append(f"{host} has no {', '.join(missing)}")
    return found


def drop_recorded(session: Session, host: str, name: str) -> None:
    """Forget a function of a host, which is gone."""
    _save(session, host, {key: one for key, one in recorded_functions(session).get(host, {}).items() if key != name})


def _take(
    services: Services,
    host: str,
    steps: Mapping[str, NetworkFunction | None],
    here: Mapping[str, PlacedFunction],
    *,
    dry_run: bool,
) -> list[str]:
    """Make and remove functions of one host, each on its own, with their records."""
    done = []
    for name, function in steps.items():
        place = here[name].place if name in here else None
        if not dry_run:
            _note(services, host, name, place, "", "it was not finished")
        try:
            (change,) = services.host(host).agent.apply([SetNetworkFunction(name, function)], dry_run=dry_run)
        except (HostError, NotFound) as error:
            services.forget_host(host)
            problem = printable(error.message)[:500]
            what = name if place is None else place.printed
            services.say(f"{host}: {what} was not {'removed' if function is None else 'made'}: {problem}")
            if not dry_run:
                _note(services, host, name, place, "", problem)
            continue
        if not dry_run:
            _note(services, host, name, place, "" if function is None else digest_of(function))
        if change.changed:
            done.append(f"{host}: {name if place is None else place.printed}: {change.before} → {change.after}")
    return done


def _note(
    services: Services, host: str, name: str, place: FunctionPlace | None, digest: str, problem: str = ""
) -> None:
    """Record a function of a host: made, removed (no place, digest and problem), or with the problem it has."""
    with services.store.transaction() as session:
        rows = dict(recorded_functions(session).get(host, {}))
        if place is not None:
            rows[name] = RecordedFunction(place.kind, place.tenant, place.owner, place.number, digest, problem)
        elif not problem:
            rows.pop(name, None)
        elif name in rows:
            rows[name] = replace(rows[name], digest="", problem=problem)
        _save(session, host, rows)


def _save(session: Session, host: str, rows: Mapping[str, RecordedFunction]) -> None:
    if not rows:
        session.drop_host_record(host, _RECORD)
        return
    session.save_host_record(host, _RECORD, json.dumps({name: asdict(one) for name, one in sorted(rows.items())}))


def _of_tenants(records: Records, tenants: Collection[str]) -> list[str]:
    """The hosts with functions of some tenants."""
    return [host for host, rows in records.items() if any(one.tenant in tenants for one in rows.values())]
