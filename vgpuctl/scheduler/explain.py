# SPDX-License-Identifier: Apache-2.0
"""Why each host and GPU cannot take a request: every one is asked, so this costs what the fleet is large."""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.model.constraints import Together
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity, Placement, Rejection
from vgpuctl.model.policy import DEFAULT_POLICY, Policy
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fit import fit
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.fleet_host import FleetHost
from vgpuctl.scheduler.host_rules import refuse_host
from vgpuctl.scheduler.partitions import refuse_taken
from vgpuctl.scheduler.relieve import relieve
from vgpuctl.scheduler.request_class import share_requests_of
from vgpuctl.scheduler.scorer import NOTHING_MORE, FleetView
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.offer import Refusal, ShareRequest
from vgpuctl.sharing.offers import ask


def explain(
    request: VmRequest,
    capacities: Sequence[HostCapacity],
    leases: Sequence[Lease],
    policy: Policy = DEFAULT_POLICY,
    view: FleetView = NOTHING_MORE,
) -> Placement | list[Rejection]:
    """Choose host and GPUs for one VM, or say for every GPU (or whole host) why it cannot.

    capacities: hosts as last read, names unique. leases: every live lease on them; others are not harmful.
    The policy orders what is allowed and refuses nothing; equal hosts go by least waste, then by name.
    A placement carries the rejections too.
    """
    fleet = Fleet(capacities, leases, policy, view)
    placement = fleet.place(request)
    rejections = rejections_of(fleet, request)
    if placement is None:
        return rejections
    return replace(placement, rejections=tuple(rejections))


def rejections_of(fleet: Fleet, request: VmRequest) -> list[Rejection]:
    """One for each GPU that can take no part of the request, or for the whole host, by host name and address."""
    share_requests = share_requests_of(request)
    there = fleet.hosts_of_group(request)
    rejections: list[Rejection] = []
    for name in sorted(fleet.hosts):
        grouped = _refuse_group(name, request, there)
        if grouped is not None:
            rejections.append(_rejection(name, None, grouped))
        else:
            rejections.extend(_on_host(fleet.hosts[name], request, share_requests))
    if request.host is not None and request.host not in fleet.hosts:
        unknown = Refusal(
            Code.HOST_UNKNOWN, "no host of this name was read", "run `vgpuctl list-hosts` to see the hosts"
        )
        rejections.append(_rejection(request.host, None, unknown))
    return rejections


def _refuse_group(name: str, request: VmRequest, there: Sequence[str]) -> Refusal | None:
    """Say that the VM's group keeps it away from a host."""
    constraints = request.constraints
    if not there or constraints.together.is_preference():
        return None
    if constraints.together.is_apart() and name in there:
        return Refusal(
            Code.GROUP_APART,
            f"it has a VM of group {constraints.group}, whose members are to be apart",
            f"ask for {constraints.group}:{Together.PREFER_APART}",
        )
    if not constraints.together.is_apart() and name not in there:
        return Refusal(
            Code.GROUP_TOGETHER,
            f"the VMs of group {constraints.group} are on {', '.join(there)}, and members are to be together",
            f"ask for {constraints.group}:{Together.PREFER_TOGETHER}",
        )
    return None


def _on_host(host: FleetHost, request: VmRequest, share_requests: Sequence[ShareRequest]) -> list[Rejection]:
    name = host.capacity.name
    refusal = refuse_host(request, host.capacity, host.cells)
    if refusal is not None:
        return [_rejection(name, None, refusal)]
    too_few = _too_few(host, share_requests)
    if too_few:
        return too_few
    rejections: list[Rejection] = []
    usable: list[GpuState] = []
    for state in host.states:
        answers = [ask(share_request, state) for share_request in dict.fromkeys(share_requests)]
        refusals = [answer for answer in answers if isinstance(answer, Refusal)]
        if len(refusals) < len(answers):
            usable.append(state)
        elif refusals:
            rejections.append(_rejection(name, state.gpu.address, refusals[0]))
    if usable and len(share_requests) > 1 and fit(share_requests, usable) is None:
        taken = refuse_taken(share_requests, usable, host.states) if host.has_fabric else None
        rejections.append(_rejection(name, None, taken or _not_together(share_requests, usable)))
    return rejections


def _too_few(host: FleetHost, share_requests: Sequence[ShareRequest]) -> list[Rejection]:
    """Say that the host takes some of the shares, and never all of them, whatever its VMs release.

    GPUs that refuse for another reason, such as their layout, are told too.
    """
    if len(share_requests) < 2:
        return []
    name = host.capacity.name
    leases = [lease for card in host.cards.values() for lease in card.leases.values()]
    shares, vms = [one.share for one in leases], {one.vm_uuid for one in leases}
    empty = Fleet([replace(host.capacity, facts=relieve(host.capacity.facts, shares, vms, ()))])
    states = empty.hosts[name].states
    most = _most_together(share_requests, states)
    if most in (0, len(share_requests)):
        return []
    refusal = Refusal(
        Code.HOST_TOO_SMALL,
        f"its GPUs take at most {most} of the {len(share_requests)} wanted together, whatever its VMs release",
        f"ask for at most {most} together",
    )
    answers = [(state.gpu.address, ask(share_requests[0], state)) for state in states]
    others = [_rejection(name, address, answer) for address, answer in answers if isinstance(answer, Refusal)]
    return [_rejection(name, None, refusal), *others]


def _most_together(share_requests: Sequence[ShareRequest], states: Sequence[GpuState]) -> int:
    return next((count for count in range(len(share_requests), 0, -1) if fit(share_requests[:count], states)), 0)


def _not_together(share_requests: Sequence[ShareRequest], states: Sequence[GpuState]) -> Refusal:
    """Say how many of the shares the host's GPUs take together."""
    most = _most_together(share_requests, states)
    missing = share_requests[most].what
    return Refusal(
        Code.NOT_TOGETHER,
        f"its GPUs take {most} of the {len(share_requests)} wanted together; no place is left for {missing}",
        "ask for fewer GPUs, or delete a VM on this host",
    )


def _rejection(host: str, gpu: str | None, refusal: Refusal) -> Rejection:
    return Rejection(host, gpu, str(refusal.code), refusal.reason, refusal.remedy)
