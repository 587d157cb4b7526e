# SPDX-License-Identifier: Apache-2.0
"""The scheduler's interface for commands: a placement, or an error that says why and what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.errors import NoCapacity, UsageError
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import FLAT, GuestNuma
from vgpuctl.model.placement import HostCapacity, Placement, Rejection
from vgpuctl.model.plural import counted
from vgpuctl.model.policy import DEFAULT_POLICY, Policy
from vgpuctl.model.vm import HostOfNetwork, VmRequest
from vgpuctl.scheduler.explain import rejections_of
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together
from vgpuctl.scheduler.guest_place import give_numa
from vgpuctl.scheduler.host_rules import left_on
from vgpuctl.scheduler.nearest import nearest_remedy
from vgpuctl.scheduler.refusals import in_short, stays_refused, summarise
from vgpuctl.scheduler.request_class import share_requests_of
from vgpuctl.scheduler.scorer import NOTHING_MORE, FleetView
from vgpuctl.scheduler.suggest import suggest_board, suggest_type
from vgpuctl.sharing.codes import Code


def place(
    request: VmRequest,
    capacities: Sequence[HostCapacity],
    leases: Sequence[Lease],
    policy: Policy = DEFAULT_POLICY,
    view: FleetView = NOTHING_MORE,
) -> Placement:
    """Choose the GPUs for one VM, all on one host, by the policy; ties by host name, GPU address and VF number.

    capacities: hosts as last read. leases: every live lease on them, as the store promises. A device is free only
    if neither shows it as taken. `mdev_uuid` of the shares is None; the caller gives the UUIDs.
    Raises NoCapacity with a line per GPU (or host), and UsageError when neither a host nor the catalogue knows
    the wanted type or model.
    """
    return place_all(Fleet(capacities, leases, policy, view), [request])[0]


def place_all(fleet: Fleet, requests: Sequence[VmRequest]) -> list[Placement]:
    """Choose the GPUs for VMs of one tenant that are created together, in the requests' order: for all or for none.

    The fleet is left as it was. Raises what `place` raises, for several VMs about the first that fits nowhere even
    alone.
    """
    placements = place_together(fleet, requests)
    if placements is not None:
        return placements
    capacities = [host.capacity for host in fleet.hosts.values()]
    alone = next((_refusal(fleet, one, capacities) for one in requests if fleet.place(one) is None), None)
    if len(requests) == 1 and alone is not None:
        raise alone
    raise NoCapacity(
        f"the {counted(len(requests), 'VM')} {', '.join(one.name for one in requests)} of tenant {requests[0].tenant}"
        " do not fit together; none was created",
        context=() if alone is None else alone.context,
        hint="ask for fewer, or see what each alone is refused for with `vgpuctl explain-vm`",
        brief=None if alone is None else alone.brief,
        short="" if alone is None else alone.short,
        stays=alone is not None and alone.stays,
    )


def _refusal(fleet: Fleet, request: VmRequest, capacities: Sequence[HostCapacity]) -> NoCapacity:
    """Say why one VM fits nowhere. Raises UsageError."""
    hint = refuse_unknown(request, [one.facts for one in capacities]) if capacities else None
    answer = rejections_of(fleet, request)
    if not capacities:
        return NoCapacity(
            f"no host was read, so VM {request.tenant}/{request.name} cannot be placed",
            hint="check the inventory with `vgpuctl list-hosts`, and a host with `vgpuctl inspect-host`",
        )
    return NoCapacity(
        _message(request),
        context=describe(answer, capacities),
        hint=hint or nearest_remedy(fleet, request, answer) or "run `vgpuctl list-gpus` to see what is there",
        brief=summarise(answer),
        short=in_short(answer),
        stays=stays_refused(answer),
        codes=[one.code for one in answer],
    )


def refuse_unknown(request: VmRequest, hosts: Sequence[HostFacts]) -> str | None:
    """Raise UsageError for a type or model that neither a host nor the catalogue knows, with near names.

    Returns a hint where the catalogue knows one that no host has, else None.
    """
    hint = None
    for gpu in request.gpus:
        if gpu.profile is not None:
            suggestion = suggest_type(gpu.profile, hosts)
        elif gpu.board is not None:
            suggestion = suggest_board(gpu.board, hosts)
        else:
            continue
        if suggestion is not None and not suggestion.is_known:
            raise UsageError(suggestion.message, hint=suggestion.hint)
        if suggestion is not None and hint is None:
            hint = f"{suggestion.message}; {suggestion.hint}"
    return hint


def place_again(
    request: VmRequest, capacity: HostCapacity, leases: Sequence[Lease], keeping: GuestNuma | None
) -> Placement:
    """Choose GPUs and NUMA nodes on its host for a VM whose guest is there already and keeps its shape.

    keeping: its part of the NUMA nodes so far, None where that was not recorded. Raises what `place` raises.
    """
    keeping = keeping or FLAT
    if not keeping.is_pinned:
        ratio = replace(capacity.constraints.cpu_ratio, pinned=None)
        capacity = replace(capacity, constraints=replace(capacity.constraints, cpu_ratio=ratio))
    placement = place(request, [capacity], leases)
    gpu_numa_nodes = [one.numa_node for one in placement.shares]
    numa, fits = give_numa(request, capacity, gpu_numa_nodes, keeping)
    if not fits:
        left = "; ".join(map(str, left_on(request, capacity)))
        raise NoCapacity(f"{capacity.name} has no room for VM {request.name} in the shape it has", context=[left])
    return replace(placement, numa=numa)


def describe(rejections: Sequence[Rejection], capacities: Sequence[HostCapacity]) -> list[str]:
    """One line per rejection: host, GPU, reason and code; hosts that were not asked for are left out."""
    titles = {(capacity.name, gpu.address): _title(gpu) for capacity in capacities for gpu in capacity.facts.gpus}
    return [_line(rejection, titles) for rejection in rejections if rejection.code != Code.HOST_WANTED_OTHER]


def _title(gpu: Gpu) -> str:
    """The model's name for people, also of a card that its driver has left."""
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return gpu.name or (board.name if board is not None else f"{gpu.vendor_id}:{gpu.device_id}")


def _line(rejection: Rejection, titles: Mapping[tuple[str, str], str]) -> str:
    where = rejection.host
    if rejection.gpu is not None:
        where += f" {rejection.gpu} {titles.get((rejection.host, rejection.gpu), '')}".rstrip()
    return f"{where}: {rejection.reason} ({rejection.code})"


def _message(request: VmRequest) -> str:
    host = request.host
    vm = f"VM {request.tenant}/{request.name}" + (f": {host.why}" if isinstance(host, HostOfNetwork) else "")
    share_requests = share_requests_of(request)
    if not share_requests:
        return f"no host can take {vm}"
    what = ", ".join(gpu.text for gpu in request.gpus)
    if len(share_requests) == 1:
        return f"no GPU can take {what} for {vm}"
    return f"no host can take {what} together for {vm}"
