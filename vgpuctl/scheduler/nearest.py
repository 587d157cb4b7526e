# SPDX-License-Identifier: Apache-2.0
"""The remedy that is nearest to admitting a refused request; what the scheduler can try is tried before it is said."""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.model.placement import HostCapacity, Rejection
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind, restrictions_on
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fit import fit
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.fleet_host import FleetHost
from vgpuctl.scheduler.host_rules import most_memory_mib
from vgpuctl.scheduler.request_class import share_requests_of
from vgpuctl.sharing.codes import Code

_CLOSED = (Code.HOST_CORDONED, Code.GPU_CORDONED, Code.HOST_DRAINED, Code.HOST_MAINTENANCE, Code.GPU_QUARANTINE)
"""What an operator's act alone ends, the least first: told before anything else."""
_RANK = {code: rank for rank, code in enumerate([*(one for one in Code if one not in _CLOSED), *reversed(_CLOSED)])}


def nearest_remedy(fleet: Fleet, request: VmRequest, rejections: Sequence[Rejection]) -> str | None:
    """The remedy, and where: of what an operator closed, else of the last rule. None where no remedy would help."""
    by_rank = sorted(rejections, key=lambda one: -_RANK[Code(one.code)])
    return next((told for one in by_rank if (told := _told(fleet, request, one)) is not None), None)


def _told(fleet: Fleet, request: VmRequest, rejection: Rejection) -> str | None:
    if rejection.remedy is None or rejection.code == Code.HOST_UNKNOWN:
        return rejection.remedy
    remedy = _remedy_that_helps(fleet.hosts[rejection.host], request, rejection)
    where = rejection.host if rejection.gpu is None else f"{rejection.host} {rejection.gpu}"
    return None if remedy is None else f"nearest is {where}: {remedy}"


def _remedy_that_helps(host: FleetHost, request: VmRequest, rejection: Rejection) -> str | None:
    """The remedy of one rejection, None where it would not admit the request. Work on the host cannot be tried."""
    code, facts = Code(rejection.code), host.capacity.facts
    if code in (*_CLOSED, Code.HOST_FENCED):
        return rejection.remedy if _takes(_opened(host.capacity, code, rejection.gpu), host, request) else None
    most_mib = most_memory_mib(request, host.cells)
    if code is Code.HOST_TOO_SMALL and request.vcpus > facts.cpus:
        smaller = replace(request, vcpus=facts.cpus)
    elif code in (Code.HOST_TOO_SMALL, Code.HOST_MEMORY) and request.memory_mib > most_mib > 0:
        smaller = replace(request, memory_mib=most_mib)
    elif code in (Code.HOST_TOO_SMALL, Code.NOT_TOGETHER):
        gpus = [replace(gpu, count=1) for gpu in request.gpus for _ in range(gpu.count)]
        for most in range(len(gpus) - 1, 0, -1):
            if _takes(host.capacity, host, replace(request, gpus=tuple(gpus[:most]))):
                return f"ask for at most {most} together"
        return None
    else:
        # The rules of a host come before those of its GPUs, which nobody has asked.
        is_whole = rejection.gpu is None and code is not Code.NO_GPU
        return None if is_whole and fit(share_requests_of(request), host.states) is None else rejection.remedy
    return rejection.remedy if _takes(host.capacity, host, smaller) else None


def _takes(capacity: HostCapacity, host: FleetHost, request: VmRequest) -> bool:
    """True if the host takes the request with its leases when it is as the capacity says."""
    leases = [lease for card in host.cards.values() for lease in card.leases.values()]
    return Fleet([capacity], leases).place(request) is not None


def _opened(capacity: HostCapacity, code: Code, address: str | None) -> HostCapacity:
    """The host without what the remedy of a code takes away, and with what else closes it."""
    if code is Code.HOST_MAINTENANCE:
        return replace(capacity, constraints=replace(capacity.constraints, maintenance=None))
    every = capacity.restrictions
    if address is None:
        return replace(capacity, restrictions=tuple(one for one in every if one.device != WHOLE_HOST))
    uuid = next(gpu.uuid for gpu in capacity.facts.gpus if gpu.address == address)
    of_gpu = restrictions_on(every, capacity.name, address, uuid)
    kind = RestrictionKind.QUARANTINE if code is Code.GPU_QUARANTINE else RestrictionKind.CORDON
    ended = [one for one in of_gpu if one.kind is kind]
    if ended:
        return replace(capacity, restrictions=tuple(one for one in every if one not in ended))
    healthy = tuple(replace(entry, quarantine=None) for entry in capacity.constraints.gpus)
    return replace(capacity, constraints=replace(capacity.constraints, gpus=healthy))
