# SPDX-License-Identifier: Apache-2.0
"""rebalance: moves of VMs from GPUs that have too little time for them to calmer ones, as `advise` finds them."""

from dataclasses import dataclass

from vgpuctl.scheduler.advice.advice import Advice
from vgpuctl.scheduler.advice.rebalance import AdvisedMove, find_moves
from vgpuctl.scheduler.defrag.plan import DefragStep, WayKind
from vgpuctl.usecases.maintenance.planned_moves import MadeStep, StepOutcome, likely_way, rehearse
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.advise import measured_fleet


@dataclass(frozen=True)
class Rebalance:
    """advice: what each move gains, in their order. steps: as their hosts say. refused: moves that a host refuses."""

    advice: tuple[Advice, ...]
    steps: tuple[MadeStep, ...]
    refused: tuple[MadeStep, ...]


def plan_rebalance(
    services: Services, *, since_s: float, replay_s: float, most: int | None = None, tenant: str | None = None
) -> Rebalance:
    """Find the moves that gain most, at most one to or from each GPU: the gain of each was judged by itself.

    most: moves. tenant: whose VMs may move, None for all. Nothing is written. Raises NotFound for the tenant and
    without past readings, StoreUnusable, PrometheusUnusable.
    """
    if tenant is not None:
        with services.store.reading() as session:
            session.tenant(tenant)
    found = [
        one
        for one in find_moves(measured_fleet(services, since_s, replay_s))
        if tenant in (None, one.moved.lease.tenant)
    ]
    found.sort(key=lambda one: (-one.advice.gain.value, one.advice.id))
    touched: set[tuple[str, str]] = set()
    taken: dict[str, tuple[Advice, MadeStep]] = {}
    refused = []
    for one in found:
        if most is not None and len(taken) >= most:
            break
        places = {one.moved.place, (one.placement.host, one.placement.shares[0].gpu)}
        step = None if places & touched else step_of(services, one)
        if step is None:
            continue
        (made,) = rehearse(services, [step])
        if made.outcome is StepOutcome.FAILED:
            refused.append(made)
            continue
        touched |= places
        taken[step.vm_uuid] = one.advice, made
    advice, steps = tuple(one for one, _made in taken.values()), tuple(made for _one, made in taken.values())
    return Rebalance(advice, steps, tuple(refused))


def step_of(services: Services, found: AdvisedMove) -> DefragStep | None:
    """The move as a step of a plan, None for a VM that is not there any more or cannot leave its host."""
    lease = found.moved.lease
    with services.store.reading() as session:
        vm = next((one for one in session.vms(host=lease.host) if one.uuid == lease.vm_uuid), None)
    if vm is None:
        return None
    way = likely_way(services, vm)
    if way.kind is WayKind.PINNED:
        return None
    gpus = (lease.share.gpu,)
    return DefragStep(vm.uuid, vm.printed_name, way.kind, way.downtime_s, vm.host, gpus, found.placement)
