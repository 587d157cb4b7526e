# SPDX-License-Identifier: Apache-2.0
"""plan-upgrade: the order of hosts for another driver or kernel, and what each of them needs. It changes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.catalog.vgpu_versions import parse_driver
from vgpuctl.errors import NotFound, UsageError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.model.constraints import Together
from vgpuctl.model.lease import Lease
from vgpuctl.model.move_verdict import NOT_LOOKED_AT, MoveKind
from vgpuctl.model.move_verdict import kind_of as way_left
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.planner.upgrade import UpgradeHost, UpgradePlan, UpgradeTarget, UpgradeVm
from vgpuctl.planner.upgrade import plan_upgrade as plan
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.usecases.maintenance.drain_host import Drained, DrainOptions, Verdict, plan_drain
from vgpuctl.usecases.observed.fences import is_fenced
from vgpuctl.usecases.observed.fleet_reader import read_fleet
from vgpuctl.usecases.observed.guest_driver import seen_drivers
from vgpuctl.usecases.observed.observations import Observation, observations, readings_in_words
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.move_check import judge_by_kept_facts
from vgpuctl.usecases.vm.move_vm import MoveWay

_MANY_QUESTIONS = 50
"""With more VMs times hosts, no host is asked how a VM would leave: what the store has of it decides."""
_MANY_VMS = 10
"""With more, the user is told what takes the time: a fifth of a second for each."""


@dataclass(frozen=True)
class UpgradeReport:
    """The plan for the hosts that answered, and the errors of the others.

    seen: by host, its last answer in words, with its age: what is planned follows from it.
    """

    plan: UpgradePlan
    failures: tuple[tuple[str, VgpuctlError], ...]
    seen: Mapping[str, str]


def plan_upgrade(
    services: Services, target: UpgradeTarget, *, at_once: int, guest_drivers: Mapping[str, str], refresh: bool
) -> UpgradeReport:
    """Plan the upgrade of the chosen hosts. guest_drivers: by `TENANT/VM`, what the operator knows of guests.

    refresh: read the hosts now, and with them the guest drivers that their vGPUs tell.

    Raises UsageError without a target, for a driver that is not a version; NotFound for a VM that is not there.
    """
    if target.driver is None and target.kernel is None:
        raise UsageError("nothing to upgrade to", hint="give --driver VERSION, --kernel VERSION, or both")
    for version in (target.driver, *guest_drivers.values()):
        if version is not None and parse_driver(version) is None:
            raise UsageError(f"{version!r} is no version of NVIDIA's driver", hint="for example 580.105.06")
    names = services.hosts()
    with services.store.reading() as session:
        dead = [name for name in names if is_fenced(session, name)]
    if dead:
        services.say(f"fenced, so nothing is planned there: {', '.join(dead)}")
    seen = survey(services, [name for name in names if name not in dead], refresh=refresh)
    with services.store.reading() as session:
        vms, leases = session.vms(), session.leases()
        ages = readings_in_words(session, [one.name for one in seen.capacities])
        observed = observations(session, vms)
    unknown = sorted(set(guest_drivers) - {_name(vm) for vm in vms})
    if unknown:
        raise NotFound(f"there is no VM {unknown[0]}", hint="write TENANT/VM=VERSION; see `vgpuctl list-vms`")
    hosts, failures = [], list(seen.failures)
    told_drivers = _read_guest_drivers(services, [one.name for one in seen.capacities]) if refresh else {}
    away = sum(vm.host in {one.name for one in seen.capacities} for vm in vms)
    if away > _MANY_VMS:
        services.say(f"looking where {away} VMs can go")
    asks = away * len(seen.capacities) <= _MANY_QUESTIONS
    way = MoveWay.KINDEST if asks else MoveWay.COLD
    if not asks:
        services.say(
            "of so many VMs no host is asked about live moves; `vgpuctl move-vm --check` asks about chosen ones"
        )
    with services.rehearsed() as rehearsed:
        for capacity in seen.capacities:
            try:
                planned = plan_drain(rehearsed, capacity.name, DrainOptions(stops=True, way=way))
            except VgpuctlError as error:
                failures.append((capacity.name, error))
                continue
            drained = {one.subject: one for one in planned}
            here = [vm for vm in vms if vm.host == capacity.name]
            told = tuple(
                _vm(
                    rehearsed,
                    vm,
                    observed[vm.uuid],
                    leases,
                    drained[vm.printed_name],
                    guest_drivers.get(
                        _name(vm), told_drivers.get((vm.host, vm.uuid)) or vm.as_known.guest_driver.version
                    ),
                )
                for vm in here
            )
            hosts.append(UpgradeHost(capacity.name, capacity.facts, told))
    return UpgradeReport(plan(hosts, target, at_once=at_once), tuple(failures), ages)


def _read_guest_drivers(services: Services, hosts: Sequence[str]) -> dict[tuple[str, str], str]:
    """The driver of each guest that its vGPU tells, by host and UUID of its VM; a host that fails tells none."""
    return {
        (snapshot.host, uuid): version
        for snapshot in read_fleet(services, hosts)
        if snapshot.readings is not None
        for uuid, version in seen_drivers(snapshot.readings).items()
    }


def _vm(
    services: Services, vm: Vm, seen: Observation, leases: list[Lease], drained: Drained, guest_driver: str | None
) -> UpgradeVm:
    constraints = vm.request.constraints
    apart = constraints.group if constraints.together in (Together.APART, Together.PREFER_APART) else None
    kinds = [kind_of(lease.share.sharing) for lease in leases if lease.vm_uuid == vm.uuid]
    leaves, not_live, not_looked_at = _leaving(services, vm, drained)
    return UpgradeVm(
        _name(vm),
        vm.state is not VmState.STOPPED and seen.known_state in (None, DomainState.RUNNING),
        str(drained.verdict),
        drained.to if drained.verdict is Verdict.MOVE else None,
        drained.reason,
        any(kind.takes is Takes.VGPU for kind in kinds),
        None if apart is None else f"{vm.request.tenant}/{apart}",
        guest_driver,
        is_unknown=seen.known_state is None,
        leaves=leaves,
        not_live=not_live,
        not_looked_at=not_looked_at,
    )


def _leaving(services: Services, vm: Vm, drained: Drained) -> tuple[str | None, str | None, tuple[str, ...]]:
    """How a VM would leave its host, what forbids a live move, and what only the hosts can tell."""
    if vm.state is VmState.STOPPED:
        return None, None, ()
    if drained.way is MoveKind.LIVE or drained.not_live is not None:
        return drained.way, drained.not_live, ()
    verdict = judge_by_kept_facts(services, vm, drained.to, drained.reason or "")
    known = [one for one in verdict.limits if one.code != NOT_LOOKED_AT]
    if known:
        return str(way_left(known)), known[0].limit, ()
    return NOT_LOOKED_AT, None, verdict.not_looked_at


def _name(vm: Vm) -> str:
    return vm.printed_name
