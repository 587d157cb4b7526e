# SPDX-License-Identifier: Apache-2.0
"""Bring hosts' network functions to what the store says, and find those that no object of the store has.

A record of each host names the functions that it may have: it is written before a function is made and after one is
gone. So a change of a tenant contacts only the hosts that differ, and a killed run is finished by `repair`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.function_digests import digest_of
from vgpuctl.agent.wire.network_function import FunctionFacts, NetworkFunction, SetNetworkFunction
from vgpuctl.errors import UsageError, VgpuctlError
from vgpuctl.model.network_function import FunctionPlace, PlacedFunction, choose_chassis
from vgpuctl.model.printable import printable
from vgpuctl.model.vpc import Vpc
from vgpuctl.ovn.gateways import chassis_order
from vgpuctl.store.store import Session
from vgpuctl.store.vpcs import MOST_INSTANCES
from vgpuctl.usecases.network.chassis_aside import chassis_aside
from vgpuctl.usecases.network.chassis_hosts import hosts_of
from vgpuctl.usecases.network.function_kinds import FUNCTION_KINDS
from vgpuctl.usecases.observed.fences import is_fenced, is_host_fenced
from vgpuctl.usecases.observed.function_records import (
    RecordedFunction,
    Records,
    recorded_functions,
    save_functions,
)
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class WantedFunctions:
    """The functions that hosts are to have. by_host: host → name → function. problems: places without a function."""

    by_host: Mapping[str, Mapping[str, PlacedFunction]]
    problems: tuple[tuple[FunctionPlace, str], ...]


def _made(session: Session, vpcs: Sequence[Vpc]) -> tuple[list[PlacedFunction], list[tuple[FunctionPlace, str]]]:
    """The functions of some tenants, and the places for which none can be made, with the reason."""
    made, problems = [], []
    for vpc in vpcs:
        for place in vpc.functions:
            try:
                made.append(PlacedFunction(place, FUNCTION_KINDS[place.kind].make(session, vpc, place)))
            except VgpuctlError as error:
                problems.append((place, error.message))
    return made, problems


def wanted_functions(services: Services, session: Session, vpcs: Sequence[Vpc]) -> WantedFunctions:
    """The functions of some tenants, by host. Raises UsageError without an inventory, if there is any function."""
    made, problems = _made(session, vpcs)
    hosts = hosts_of(services, {one.place.chassis for one in made}) if made else {}
    by_host: dict[str, dict[str, PlacedFunction]] = {}
    for one in made:
        host = hosts[one.place.chassis]
        if host is None:
            problems.append((one.place, f"no host of the inventory is chassis {one.place.chassis}"))
        else:
            by_host.setdefault(host, {})[one.place.name] = one
    return WantedFunctions(by_host, tuple(problems))


def bring_functions(services: Services, vpcs: Sequence[Vpc], *, dry_run: bool = False) -> list[str]:
    """Bring the functions of some tenants to what the store says, on the hosts whose records differ.

    Returns what was done in words. A host that refuses or does not answer stops no other: its record keeps the problem,
    the user is told, and `repair` tries again. No inventory is needed where nothing differs.
    """
    tenants = {vpc.tenant for vpc in vpcs}
    with services.store.reading() as session:
        records = recorded_functions(session)
        if not any(vpc.functions for vpc in vpcs) and not _of_tenants(records, tenants):
            return []
        made, _problems = _made(session, vpcs)
        if not _problems and _is_recorded(records, tenants, made):
            return []
        try:
            wanted = wanted_functions(services, session, vpcs)
        except VgpuctlError as error:
            services.say(f"programs on hosts stay as they are: {error.message}; `vgpuctl repair` brings them")
            return []
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


def _is_recorded(records: Records, tenants: Collection[str], made: Sequence[PlacedFunction]) -> bool:
    """True if the records of hosts have these functions of some tenants and no others."""
    wanted = sorted((one.place.name, one.place.chassis, digest_of(one.function)) for one in made)
    rows = [(name, one) for each in records.values() for name, one in each.items() if one.tenant in tenants]
    return wanted == sorted((name, one.chassis, one.digest) for name, one in rows)


def repair_functions(services: Services, vpcs: Sequence[Vpc], *, dry_run: bool) -> Iterator[tuple[str, str, str, str]]:
    """Compare every host that has functions, or is to have some, with the store: (function, host, found, outcome)."""
    with services.store.reading() as session:
        records = recorded_functions(session)
        wanted = wanted_functions(services, session, vpcs)
    for place, why in wanted.problems:
        yield place.printed, place.chassis, "network function does not run", f"failed: {why}"
    for host in sorted({*wanted.by_host, *records}):
        here, rows = wanted.by_host.get(host, {}), records.get(host, {})
        if is_host_fenced(services, host):
            continue
        try:
            found = {one.name: one for one in services.host(host).agent.functions().functions}
        except VgpuctlError as error:
            services.forget_host(host)
            for name in sorted({*here, *rows}):
                yield name, host, "network function was not looked at", f"failed: {error.message}"
            continue
        differences = compare(here, rows, found)
        for name in () if dry_run else [one for one in here if one not in differences]:
            digest = digest_of(here[name].function)
            if name not in rows or rows[name].digest != digest or rows[name].problem:
                _note(services, host, name, here[name].place, digest)
        for name, why in differences.items():
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


def chosen_chassis(services: Services, tenant: str, chassis: Sequence[str]) -> list[str]:
    """The chassis of an external network that a tenant's functions run on. Raises UsageError where there is none."""
    with services.store.reading() as session:
        aside = chassis_aside(session)
    chosen = choose_chassis(chassis_order(tenant, chassis), aside, MOST_INSTANCES)
    if not chosen:
        raise UsageError(
            f"no host can have programs of tenant {tenant}: its external network names no chassis",
            hint="name hosts with option --chassis of `vgpuctl create-external-network`",
        )
    return chosen


def hosts_without(services: Services, chassis: Sequence[str], needs: Collection[str]) -> list[str]:
    """Why hosts cannot have a function, one sentence a host. They are asked, not changed. Raises HostError."""
    found = []
    for one, host in hosts_of(services, chassis).items():
        if host is None:
            found.append(f"no host of the inventory is chassis {one}")
            continue
        missing = sorted(set(needs) - set(services.host(host).agent.functions().programs))
        if missing:
            found.append(f"{host} has no {', '.join(missing)}")
    return found


def _take(
    services: Services,
    host: str,
    steps: Mapping[str, NetworkFunction | None],
    here: Mapping[str, PlacedFunction],
    *,
    dry_run: bool,
) -> list[str]:
    """Make and remove functions of one host, each on its own, with their records. A fenced host is not asked."""
    done = []
    with services.store.reading() as session:
        fenced = is_fenced(session, host)
    for name, function in steps.items():
        place = here[name].place if name in here else None
        if fenced:
            if not dry_run:
                _note(services, host, name, place, "", "the host is fenced")
            continue
        if not dry_run:
            _note(services, host, name, place, "", "it was not finished")
        try:
            (change,) = services.host(host).agent.apply([SetNetworkFunction(name, function)], dry_run=dry_run)
        except VgpuctlError as error:
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
            rows[name] = RecordedFunction(
                place.kind, place.tenant, place.owner, place.number, place.chassis, digest, problem
            )
        elif not problem:
            rows.pop(name, None)
        elif name in rows:
            rows[name] = replace(rows[name], digest="", problem=problem)
        save_functions(session, host, rows)


def _of_tenants(records: Records, tenants: Collection[str]) -> list[str]:
    """The hosts with functions of some tenants."""
    return [host for host, rows in records.items() if any(one.tenant in tenants for one in rows.values())]
