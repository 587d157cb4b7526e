# SPDX-License-Identifier: Apache-2.0
"""A VM of a contended GPU that fits on a calmer one of another host."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vgpuctl.model.placement import Placement
from vgpuctl.model.policy import parse_policy
from vgpuctl.scheduler.advice.advice import Advice, AdviceKind, Confidence, Gain, advice_id
from vgpuctl.scheduler.advice.measured import UTILIZATION, MeasuredFleet, MeasuredVgpu, is_of_now
from vgpuctl.scheduler.advice.replay import Outcome, as_measured, demand_of, under_best_effort
from vgpuctl.scheduler.capacity import as_it_is
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.scorer import FleetView

FEWEST_MINUTES = 30
LEAST_MISSING = 0.02
LEAST_GAIN = 0.5
"""Part of the missing time that the move must give back."""


class AdvisedMove(NamedTuple):
    """A VM, where it would go, and what that is good for."""

    moved: MeasuredVgpu
    placement: Placement
    advice: Advice


def advise(fleet: MeasuredFleet) -> Iterator[Advice]:
    """One advice for each contended GPU: the move that the replay likes best."""
    return (one.advice for one in find_moves(fleet))


def find_moves(fleet: MeasuredFleet) -> Iterator[AdvisedMove]:
    """The move of each contended GPU that the replay likes best. Each is judged as if it was the only one."""
    places: Fleet | None = None
    for vgpus in fleet.by_gpu.values():
        known = [one for one in vgpus if one.promised is not None and is_of_now(one.of(UTILIZATION), fleet.now)]
        if len(known) < 2:
            continue
        demands = {one.lease.id: demand_of(one) for one in known}
        now = as_measured(known, demands)
        if now.minutes < FEWEST_MINUTES or now.wanted - now.delivered < LEAST_MISSING * now.wanted:
            continue
        if places is None:
            view = FleetView(utilisation_percent=_loads(fleet))
            places = Fleet(fleet.capacities, fleet.replayed.leases(), view=view)
        # Of equal gains the VM that uses most moves: its neighbours, who lost time, are not disturbed.
        order = sorted(known, key=lambda one: (-sum(one.use.values()), one.lease.id))
        moves = [move for one in order if (move := _move(fleet, one, known, now, places)) is not None]
        if moves:
            yield max(moves, key=lambda one: round(one.advice.gain.value, 3))


def _loads(fleet: MeasuredFleet) -> dict[tuple[str, str], float]:
    """The mean use of each GPU over the kept minutes, in whole percent. One that is not known counts as full."""
    found = {}
    for place, vgpus in fleet.by_gpu.items():
        minutes = {minute for one in vgpus for minute in one.use}
        total = sum(sum(one.use.values()) for one in vgpus)
        found[place] = float(min(100, round(100 * total / max(1, len(minutes)))))
    return found | dict.fromkeys(fleet.unread, 100.0)


def _move(
    fleet: MeasuredFleet, moved: MeasuredVgpu, there: Sequence[MeasuredVgpu], now: Outcome, places: Fleet
) -> AdvisedMove | None:
    """The move of one of the vGPUs, None where it fits on no other host or gains too little."""
    vm = fleet.vms.get(moved.lease.vm_uuid)
    if vm is None or vm.request.host is not None or fleet.shares_of_vm[vm.vm_uuid] != 1:
        return None
    here = fleet.replayed.hosts.get(vm.host)
    if here is not None:
        places.remove(vm.host)
    placement = places.place(as_it_is(vm), parse_policy("least-utilised"))
    if here is not None:
        places.put(*here)
    if placement is None:
        return None
    target = (placement.host, placement.shares[0].gpu)
    if target in fleet.unread:
        return None
    beside = [*(one for one in fleet.by_gpu.get(target, ()) if one.use), moved]
    left = [one for one in there if one is not moved]
    demands = {one.lease.id: demand_of(one) for one in (*left, *beside)}
    before_there = as_measured(beside[:-1], demands)
    after_here, after_there = under_best_effort(left, demands), under_best_effort(beside, demands)
    was = now.missing_hours + before_there.missing_hours
    will = after_here.missing_hours + after_there.missing_hours
    if was - will < LEAST_GAIN * now.missing_hours:
        return None
    is_bound = any(one.is_bound for one in demands.values())
    return AdvisedMove(moved, placement, _advice(moved, placement, now, was, will, is_bound=is_bound))


def _advice(
    moved: MeasuredVgpu, placement: Placement, now: Outcome, was: float, will: float, *, is_bound: bool
) -> Advice:
    lease, hours = moved.lease, now.minutes / 60
    target = f"{placement.host} {placement.shares[0].gpu}"
    return Advice(
        id=advice_id(AdviceKind.REBALANCE, lease.vm_uuid, *moved.place),
        kind=AdviceKind.REBALANCE,
        host=lease.host,
        gpu=lease.share.gpu,
        tenant=lease.tenant,
        vm=lease.vm_name,
        text=(
            f"the VMs of {lease.host} {lease.share.gpu} missed {now.missing_hours:.2f} GPU-hours of promised time"
            f" in {hours:.1f} measured hours"
        ),
        before={f"{moved.vm} place": f"{lease.host} {lease.share.gpu}"},
        after={f"{moved.vm} place": target},
        commands=(f"vgpuctl move-vm {lease.tenant}/{lease.vm_name} --to {placement.host}",),
        gain=Gain(
            f"{will:.2f} GPU-hours of promised time would be missing on both GPUs instead of {was:.2f}"
            + (", at best" if is_bound else ""),
            was - will,
            "GPU-hours of promised time",
            at_most=is_bound,
        ),
        proof=(
            f"{now.minutes} kept minutes of both GPUs were replayed with the VM moved, time in proportion to demand"
            " where a GPU has too little; placing was replayed with the rules of create-vm"
        ),
        confidence=Confidence.of(hours, is_bound=is_bound),
        measured_hours=hours,
    )
