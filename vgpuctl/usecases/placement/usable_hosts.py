# SPDX-License-Identifier: Apache-2.0
"""Hosts that a tenant's VM may be placed on: the command's hosts without those in pools of others."""

import difflib
from collections.abc import Mapping, Sequence

from vgpuctl.errors import NoCapacity
from vgpuctl.model.placement import Rejection
from vgpuctl.model.vm import HostOfNetwork, VmRequest
from vgpuctl.quota.host_pools import closed_hosts
from vgpuctl.scheduler.explain import rejections_of
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.refusals import in_short
from vgpuctl.sharing.codes import Code
from vgpuctl.usecases.observed.capacities import cached_capacities, with_silence
from vgpuctl.usecases.observed.observations import observed_hosts
from vgpuctl.usecases.observed.survey import Survey
from vgpuctl.usecases.running.services import Services


def refuse_unknown_host(services: Services, host: str | None, names: Sequence[str]) -> None:
    """Refuse a host that a VM names and this command has not, with near names, before any host is read.

    Raises NoCapacity.
    """
    if host is None or host in names:
        return
    if host in services.inventory.select(None):
        why = f", and {host.why}" if isinstance(host, HostOfNetwork) else ""
        raise NoCapacity(f"host {host} is left out by --limit{why}", hint="name it in --limit too", stays=True)
    near = difflib.get_close_matches(host, names, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "see `vgpuctl list-hosts`"
    raise NoCapacity(f"the inventory has no host {host}", hint=hint, stays=True)


def silent_hosts(services: Services, seen: Survey) -> dict[str, Rejection]:
    """Surveyed hosts that the store knows not to answer, or whose libvirt it knows so; `create-vm` leaves them out.

    A host that was read now answers; its libvirt was not asked.
    """
    with services.store.reading() as session:
        observed = observed_hosts(session)
    return {
        one.name: Rejection(one.name, None, str(Code.HOST_SILENT), one.silence, "`vgpuctl list-hosts` asks it again")
        for one in with_silence(seen.capacities, observed, seen.read)
        if one.silence is not None
    }


def usable_hosts(services: Services, request: VmRequest) -> list[str]:
    """The hosts of this command that the request's tenant may use.

    Raises NoCapacity when the host it names, or every host, is in a pool that is not granted to the tenant.
    """
    with services.store.reading() as session:
        closed = closed_hosts(request.tenant, session.host_pools())
    names = services.hosts()
    refuse_unknown_host(services, request.host, names)
    usable = [name for name in names if name not in closed]
    if usable and request.host not in closed:
        return usable
    barred = [request.host] if request.host is not None and request.host in closed else list(names)
    raise not_granted(request, {name: closed[name] for name in barred})


def not_granted(request: VmRequest, closed: Mapping[str, str]) -> NoCapacity:
    """The error for hosts that are the only ones, and in pools of others. closed: the pool of each."""
    first = next(iter(closed))
    why = f", and {request.host.why}" if isinstance(request.host, HostOfNetwork) else ""
    return NoCapacity(
        f"tenant {request.tenant} may not use {first if len(closed) == 1 else 'any of the hosts'}{why}",
        context=lines_of_closed(request, closed),
        hint=f"run `vgpuctl grant-host-pool {closed[first]} {request.tenant}`",
    )


def lines_of_closed(request: VmRequest, closed: Mapping[str, str]) -> list[str]:
    """A line for each host that a pool keeps from a tenant. closed: the pool of each."""
    return [f"{name}: in pool {pool}, which is not granted to {request.tenant}" for name, pool in closed.items()]


def why_never(services: Services, requests: Sequence[VmRequest]) -> str | None:
    """Say that no host can take one of these VMs even when it is empty; None when one might.

    A host that was never read, or that --limit leaves out, might. No host is contacted. requests: of one tenant, with
    what their networks ask of hosts.
    """
    with services.store.reading() as session:
        closed = closed_hosts(requests[0].tenant, session.host_pools())
        capacities = cached_capacities(session, services.inventory)
    usable = set(services.inventory.select(None)) - closed.keys()
    fleet = Fleet([one for one in capacities if one.name in usable])
    for request in requests:
        able = usable if request.host is None else usable & {request.host}
        answer = rejections_of(fleet, request)
        refused = {one.host for one in answer if one.gpu is None} | _hosts_refusing(fleet, answer)
        if able and refused & fleet.hosts.keys() >= able and all(Code(one.code).is_never() for one in answer):
            hosts = f"no host that tenant {request.tenant} may use" if closed else "no host of the fleet"
            return f"{hosts} can ever take {'it' if len(requests) == 1 else request.name}: {in_short(answer)}"
    return None


def _hosts_refusing(fleet: Fleet, answer: Sequence[Rejection]) -> set[str]:
    """The hosts of which every GPU refuses."""
    gpus = {(one.host, one.gpu) for one in answer}
    return {name for name, host in fleet.hosts.items() if host.cards and all((name, gpu) in gpus for gpu in host.cards)}
