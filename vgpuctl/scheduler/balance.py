# SPDX-License-Identifier: Apache-2.0
"""Moves of VMs away from GPUs above a load, to GPUs that stay below it: greedy, the hottest GPU first.

Loads are values. A VM counts with the same load where it goes, because a move gives it an equal share of an equal GPU.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean

from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.policy import Policy, PolicyName
from vgpuctl.scheduler.capacity import PlacedVm, as_it_is
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.scheduler.rolling import WINDOW_S
from vgpuctl.scheduler.scorer import FleetView
from vgpuctl.sharing.kinds import kind_of

Place = tuple[str, str]
"""Host and address of a GPU."""

LEAST_PERCENT = 1.0
"""A VM of less load is not moved for load."""

RECENT_S, FEWEST_SAMPLES = 900.0, 2
"""The load of now is the mean of this time, with so many samples at least."""

_LEAST_DEVIATION = 0.1
"""Of a load that did not vary: nobody knows that it goes on so."""

_WIDTH = 1.645
"""Standard deviations above the mean that 5 % of the time exceed."""


@dataclass(frozen=True)
class ShareLoad:
    """The expected load of one share, in percent of its GPU. deviation: standard deviation from that."""

    percent: float = 0.0
    deviation: float = 0.0


def share_load(samples: Iterable[tuple[float, float]], now: float) -> ShareLoad | None:
    """The load of a share: the mean of the last quarter of an hour, and how it varied in the last hour.

    samples: begin of a minute in seconds since the epoch, and the part of the GPU's time that was used. None where
    nothing was measured for a quarter of an hour, or too little since the share is there.
    """
    found = [(now - at, min(1.0, max(0.0, part))) for at, part in samples if -60 <= now - at <= WINDOW_S]
    recent = [part for age_s, part in found if age_s <= RECENT_S]
    if len(recent) < FEWEST_SAMPLES:
        return None
    percent, mean = 100 * fmean(recent), fmean(part for _, part in found)
    variance = fmean((part - mean) ** 2 for _, part in found)
    return ShareLoad(percent, max(_LEAST_DEVIATION * percent, 100 * math.sqrt(variance)))


@dataclass(frozen=True)
class SummedLoad:
    """The load of a GPU: sums over its shares, which vary independently of each other."""

    percent: float = 0.0
    variance: float = 0.0

    @property
    def high_percent(self) -> float:
        """The load that it exceeds in 5 % of the time."""
        return self.percent + _WIDTH * math.sqrt(max(0.0, self.variance))

    def plus(self, share: ShareLoad) -> "SummedLoad":
        """With one more share."""
        return SummedLoad(self.percent + share.percent, self.variance + share.deviation**2)

    def minus(self, share: ShareLoad) -> "SummedLoad":
        """Without one of its shares."""
        return SummedLoad(max(0.0, self.percent - share.percent), max(0.0, self.variance - share.deviation**2))


@dataclass(frozen=True)
class LoadedFleet:
    """Hosts, leases and VMs, with their loads.

    vms: by UUID. shares: by id of a lease. others: percent of a GPU that something else uses, by place. unmoved: ids of
    leases whose load is a guess, so that their VMs stay.
    """

    capacities: tuple[HostCapacity, ...]
    leases: tuple[Lease, ...]
    vms: Mapping[str, PlacedVm]
    shares: Mapping[str, ShareLoad]
    others: Mapping[Place, float] = field(default_factory=dict)
    unmoved: Collection[str] = ()

    @cached_property
    def gpus(self) -> dict[Place, SummedLoad]:
        """The loads of GPUs that have any."""
        found = {place: SummedLoad(percent) for place, percent in self.others.items()}
        for one in self.leases:
            place = (one.host, one.share.gpu)
            if one.id in self.shares:
                found[place] = found.get(place, SummedLoad()).plus(self.shares[one.id])
        return found


@dataclass(frozen=True)
class BalancingMove:
    """A VM and where it would go. load: its own. source, target: loads of both GPUs before and after."""

    vm: PlacedVm
    lease: Lease
    placement: Placement
    load: ShareLoad
    source: tuple[SummedLoad, SummedLoad]
    target: tuple[SummedLoad, SummedLoad]

    @property
    def from_place(self) -> Place:
        """The GPU that it leaves."""
        return self.lease.host, self.lease.share.gpu

    @property
    def to_place(self) -> Place:
        """The GPU that takes it."""
        return self.placement.host, self.placement.shares[0].gpu


def find_balancing(
    fleet: LoadedFleet,
    above_percent: float,
    *,
    barred: Mapping[str, Collection[str]] | None = None,
    staying: Collection[str] = (),
) -> Iterator[BalancingMove]:
    """The moves that bring GPUs below a load, each planned after those before it: take as many as may be made.

    above_percent: the load that a GPU shall not exceed. barred: hosts by UUID of a VM that must not go there.
    staying: UUIDs of VMs that do not move. A VM moves once, to another host.
    """
    return _Balancing(fleet, above_percent, barred or {}, staying).moves()


class _Balancing:
    """The fleet while moves are planned. Room that a move frees is not given away: the VM is there until it moves."""

    def __init__(
        self,
        fleet: LoadedFleet,
        above_percent: float,
        barred: Mapping[str, Collection[str]],
        staying: Collection[str],
    ) -> None:
        self._given, self._above, self._barred = fleet, above_percent, barred
        self._loads = dict(fleet.gpus)
        self._busy = {place: load.high_percent for place, load in self._loads.items()}
        self._policy = Policy(((PolicyName.LEAST_UTILISED, 1.0),))
        self._hosts = {one.name: one for one in fleet.capacities}
        self._leases: dict[str, list[Lease]] = {name: [] for name in self._hosts}
        self._on: dict[Place, list[Lease]] = {}
        shares = Counter(one.vm_uuid for one in fleet.leases)
        self._done = {*staying, *(uuid for uuid, count in shares.items() if count > 1)}
        for one in fleet.leases:
            self._leases.setdefault(one.host, []).append(one)
            self._on.setdefault((one.host, one.share.gpu), []).append(one)
        self._fleet: Fleet | None = None

    def moves(self) -> Iterator[BalancingMove]:
        """Go on from the hottest GPU that a move cools, until there is none."""
        left = {place for place, load in self._loads.items() if load.high_percent > self._above}
        while left:
            hottest = max(sorted(left), key=lambda one: self._loads[one].high_percent)
            best = self._best_from(hottest)
            if best is None:
                left.discard(hottest)
                continue
            self._make(best)
            if self._loads[hottest].high_percent <= self._above:
                left.discard(hottest)
            yield best

    def _places(self) -> Fleet:
        if self._fleet is None:
            # The view keeps this dictionary, so a host that is put in again has the loads of then.
            view = FleetView(utilisation_percent=self._busy)
            leases = [lease for name in self._hosts for lease in self._leases[name]]
            self._fleet = Fleet(self._hosts.values(), leases, view=view)
        return self._fleet

    def _best_from(self, source: Place) -> BalancingMove | None:
        """The move that leaves the least above the limit, then the one that leaves both GPUs the coolest."""
        if source[0] not in self._hosts:
            return None
        fleet = self._places()
        fleet.remove(source[0])
        found = [move for lease in self._on.get(source, ()) if (move := self._move(lease, fleet)) is not None]
        self._put(source[0])
        return min(
            found,
            key=lambda one: (
                max(0.0, one.source[1].high_percent - self._above),
                max(one.source[1].high_percent, one.target[1].high_percent),
                one.lease.vm_name,
                one.lease.id,
            ),
            default=None,
        )

    def _move(self, lease: Lease, fleet: Fleet) -> BalancingMove | None:
        """The move of a VM to the calmest GPU that takes it; None where that gains nothing."""
        vm, load = self._given.vms.get(lease.vm_uuid), self._given.shares.get(lease.id)
        if vm is None or load is None or load.percent < LEAST_PERCENT or lease.id in self._given.unmoved:
            return None
        if vm.vm_uuid in self._done or vm.request.host is not None:
            return None
        barred = [name for name in sorted(self._barred.get(vm.vm_uuid, ())) if name in fleet.hosts]
        for name in barred:
            fleet.remove(name)
        placement = fleet.place(as_it_is(vm), self._policy)
        for name in barred:
            self._put(name)
        if placement is None or not placement.shares:
            return None
        here = self._loads[lease.host, lease.share.gpu]
        there = self._loads.get((placement.host, placement.shares[0].gpu), SummedLoad())
        found = BalancingMove(vm, lease, placement, load, (here, here.minus(load)), (there, there.plus(load)))
        return found if self._is_gain(found) else None

    def _is_gain(self, move: BalancingMove) -> bool:
        """True if the target stays below the limit; or, where the source is above it now, has more room than that."""
        before, after = move.source[0], move.target[1]
        if after.high_percent <= self._above:
            return True
        return (
            before.percent > self._above >= after.percent and after.high_percent < before.high_percent - LEAST_PERCENT
        )

    def _make(self, move: BalancingMove) -> None:
        """Count the VM at its new place, and its load no longer at the old one."""
        self._done.add(move.vm.vm_uuid)
        for place, load in ((move.from_place, move.source[1]), (move.to_place, move.target[1])):
            self._loads[place], self._busy[place] = load, load.high_percent
        (share,) = move.placement.shares
        share = kind_of(share.sharing).named(share, move.lease.id)
        name = move.placement.host
        self._leases[name].append(replace(move.lease, id=f"{move.lease.id} moved", host=name, share=share))
        if move.vm.footprint != NO_FOOTPRINT:
            given = footprint_of(as_it_is(move.vm), move.placement)
            self._hosts[name] = with_promised(self._hosts[name], more=(given,))
        for changed in (name, move.from_place[0]):
            self._put(changed)

    def _put(self, name: str) -> None:
        self._places().put(self._hosts[name], self._leases[name])
