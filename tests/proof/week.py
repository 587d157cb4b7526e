# SPDX-License-Identifier: Apache-2.0
"""A week of a simulated fleet, with and without moves for load: how long a card is above what another could take.

VMs of five kinds come and go on hosts with two A40s each. The use of a VM follows its kind's day, with noise and
bursts; a card that is asked for more than it has gives its time in proportion. The scheduler sees readings alone.
Each run places the same VMs by `least-utilised@70`. It differs in how many moves of `rebalance --above 70` an hour has.
A host refuses a VM in a part of the cases.

The judge does not use the scheduler: after each reading it goes by the true demand of the last quarter of an hour and
the rules of an A40 (vGPUs of one size, 48 GiB). It counts the times at which any card is above 70 %, and one of its VMs
fits on another card that stays at 70 % or below with it.

The last line is JSON: `python -m tests.proof.week [--hosts 40] [--days 7] [--seed 1] [--step 5]`
"""

import argparse
import json
import math
import random
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import GIB, host, leases_of
from tests.unit.fleet_factory import vm as request_of
from vgpuctl import catalog
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.model.placement import Placement
from vgpuctl.model.policy import parse_policy
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.balance import LoadedFleet, Place, ShareLoad, find_balancing, share_load
from vgpuctl.scheduler.capacity import PlacedVm
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.rolling import RollingLoad, rolling_load
from vgpuctl.scheduler.scorer import FleetView
from vgpuctl.scheduler.unmeasured import UnmeasuredLoad, seen_part
from vgpuctl.sharing.kinds import kind_of

ABOVE = 70.0
POLICY = parse_policy("least-utilised@70")
JUDGED, HOUR, DAY = 15, 60, 1440
"""Minutes that the judge looks back, of an hour and of a day."""

REFUSED = 0.15
"""Part of the pairs of VM and host that the host refuses."""


@dataclass(frozen=True)
class Kind:
    """VMs of one use. low, high: use of a GPU at night and at the peak. peak_hour, width_h: of its day; 0 for none.

    noise: deviation of a minute against the mean. burst: chance that a burst begins in an hour. life_h: mean life.
    share: part of the VMs that arrive.
    """

    name: str
    profile: str
    low: float
    high: float
    peak_hour: float
    width_h: float
    noise: float
    burst: float
    life_h: float
    share: float

    @property
    def size_gib(self) -> int:
        """Framebuffer of its profile."""
        return int(self.profile.removeprefix("A40-").removesuffix("Q"))


KINDS = (
    Kind("office", "A40-8Q", 0.02, 0.13, 11.0, 4.0, 0.20, 0.01, 60.0, 0.42),
    Kind("design", "A40-12Q", 0.03, 0.26, 14.0, 4.0, 0.20, 0.01, 60.0, 0.16),
    Kind("answers", "A40-16Q", 0.10, 0.34, 20.0, 5.0, 0.15, 0.01, 72.0, 0.14),
    Kind("training", "A40-24Q", 0.55, 0.55, 0.0, 0.0, 0.05, 0.0, 10.0, 0.20),
    Kind("batch", "A40-12Q", 0.30, 0.30, 0.0, 0.0, 0.10, 0.0, 4.0, 0.08),
)


class Demand:
    """The demand of one VM, step by step: the day of its kind, slow noise, bursts."""

    def __init__(self, kind: Kind, seed: int, step: int) -> None:
        self._kind, self._dice, self._step = kind, random.Random(seed), step
        self._kept = 0.9 ** (step / 5)
        self._scale = self._dice.lognormvariate(0.0, 0.35)
        self._late_h = self._dice.gauss(0.0, 1.0)
        self._drift = 0.0
        self._burst_until, self._burst = -1, 1.0

    def at(self, minute: int) -> float:
        """The mean of the next step; each is asked for once, in order."""
        kind, dice = self._kind, self._dice
        mean = kind.high
        if kind.width_h:
            away = (minute / HOUR - kind.peak_hour - self._late_h) % 24
            away = min(away, 24 - away)
            is_weekend = minute // DAY % 7 >= 5
            part = math.exp(-0.5 * (away / kind.width_h) ** 4) * (0.25 if is_weekend else 1.0)
            mean = kind.low + (kind.high - kind.low) * part
        self._drift = self._kept * self._drift + math.sqrt(1 - self._kept**2) * dice.gauss(0.0, kind.noise)
        if minute > self._burst_until and dice.random() < kind.burst * self._step / HOUR:
            self._burst_until, self._burst = minute + int(dice.uniform(10, 60)), dice.uniform(1.5, 2.5)
        burst = self._burst if minute <= self._burst_until else 1.0
        return min(1.0, max(0.0, mean * self._scale * burst * math.exp(self._drift) * dice.lognormvariate(0, 0.05)))


@dataclass(frozen=True)
class Arrival:
    """A VM of the week, in minutes."""

    name: str
    kind: Kind
    at: int
    until: int


@dataclass
class RunningVm:
    """A VM that is there. minutes: what was read of its use. wanted: of the last minutes, true."""

    arrival: Arrival
    request: VmRequest
    lease: Lease
    demand: Demand
    begun_at: int
    step: int
    readings: deque[tuple[float, float, float]] = field(default_factory=deque)
    wants: deque[float] = field(default_factory=deque)
    last_load: ShareLoad = field(default_factory=ShareLoad)

    def __post_init__(self) -> None:
        self.readings = deque(maxlen=HOUR // self.step)
        self.wants = deque(maxlen=JUDGED // self.step)

    @property
    def mean_wanted(self) -> float:
        """Its true demand of late."""
        return fmean(self.wants) if self.wants else 0.0

    @property
    def place(self) -> Place:
        """Host and GPU."""
        return self.lease.host, self.lease.share.gpu

    @property
    def placed(self) -> PlacedVm:
        """The VM as the scheduler knows it."""
        name, lease = self.arrival.name, self.lease
        return PlacedVm(lease.vm_uuid, name, self.request, lease.host, NO_FOOTPRINT, (lease,))


@dataclass
class Tally:
    """The findings of the judge. card_minutes: of cards above the limit that another card could help."""

    judged: int = 0
    overloaded: int = 0
    card_times: int = 0
    cards: int = 0
    lost: float = 0.0
    wanted: float = 0.0
    arrived: int = 0
    refused: int = 0
    moves: int = 0
    refused_moves: int = 0

    def as_json(self) -> dict[str, float]:
        """The figures, as parts and numbers."""
        return {
            "overloaded": round(self.overloaded / max(1, self.judged), 4),
            "overloaded_cards": round(self.card_times / max(1, self.cards), 5),
            "use_lost": round(self.lost / max(1e-9, self.wanted), 5),
            "arrived": self.arrived,
            "refused": self.refused,
            "moves": self.moves,
            "refused_moves": self.refused_moves,
        }


def arrivals(hosts: int, days: int, fill: float, seed: int) -> list[Arrival]:
    """VMs that want `fill` of the fleet's framebuffer in the mean; those of the first hour stand for what was there."""
    dice, found = random.Random(seed), list[Arrival]()
    stock = sum(one.share * one.size_gib * one.life_h for one in KINDS)
    per_hour = fill * hosts * 2 * 48 / stock
    weights = [one.share for one in KINDS]
    living = [one.share * one.life_h for one in KINDS]

    def add(kind: Kind, at: float) -> None:
        life = max(0.5, dice.expovariate(1 / kind.life_h)) * HOUR
        found.append(Arrival(f"{kind.name}-{len(found):05d}", kind, int(at), int(at + life)))

    for _ in range(round(per_hour * sum(living))):
        add(dice.choices(KINDS, living)[0], dice.uniform(0, HOUR))
    at = float(HOUR)
    while at < days * DAY:
        at += dice.expovariate(per_hour / HOUR)
        add(dice.choices(KINDS, weights)[0], at)
    return sorted(found, key=lambda one: (one.at, one.name))


class Week:
    """One run. moves_per_hour: 0 for none."""

    def __init__(self, hosts: int, moves_per_hour: int, seed: int, above: float = ABOVE, step: int = 5) -> None:
        self._capacities = tuple(
            host(f"gpu{number:02d}", _card("0000:41:00.0"), _card("0000:51:00.0"), cpus=256, memory_mib=1024 * GIB)
            for number in range(hosts)
        )
        self._cards = [(one.name, gpu.address) for one in self._capacities for gpu in one.facts.gpus]
        self._seed, self._per_hour, self._above, self._step = seed, moves_per_hour, above, step
        self._vms: dict[str, RunningVm] = {}
        self._readings: dict[Place, deque[tuple[float, float, float]]] = {
            one: deque(maxlen=HOUR // step) for one in self._cards
        }
        self._moved_at: deque[int] = deque()
        self.tally = Tally()

    def play(self, stream: Sequence[Arrival], minutes: int) -> Tally:
        """Let the time pass."""
        waiting = deque(stream)
        for minute in range(0, minutes, self._step):
            for name in [name for name, one in self._vms.items() if one.arrival.until <= minute]:
                del self._vms[name]
            while waiting and waiting[0].at <= minute:
                self._place(waiting.popleft(), minute)
            self._use(minute)
            if minute >= 2 * HOUR:  # before the moves that answer to this reading: what just began counts a step
                self._judge()
            if self._per_hour:
                self._balance(minute + self._step)
        return self.tally

    def _by_card(self) -> dict[Place, list[RunningVm]]:
        found: dict[Place, list[RunningVm]] = {one: [] for one in self._cards}
        for one in self._vms.values():
            found[one.place].append(one)
        return found

    def _use(self, minute: int) -> None:
        """Set the demand of each VM in a step, its use, and the readings of it."""
        for place, there in self._by_card().items():
            for one in there:
                one.wants.append(one.demand.at(minute))
            total = sum(one.wants[-1] for one in there)
            part = 1.0 if total <= 1.0 else 1.0 / total
            self._readings[place].append((minute * 60.0, min(1.0, total), min(1.0, total * 1.05)))
            self.tally.wanted += total
            self.tally.lost += total * (1 - part)
            for one in there:
                got = one.wants[-1] * part
                one.readings.append((minute * 60.0, got, min(1.0, got * 1.05)))

    def _loads(self, minute: int) -> dict[Place, RollingLoad]:
        found = {place: rolling_load(kept, minute * 60.0) for place, kept in self._readings.items()}
        return {place: load for place, load in found.items() if load is not None}

    def _place(self, arrival: Arrival, minute: int) -> None:
        now = minute * 60.0
        by_kind: dict[str, list[float]] = {}
        seen = {}
        for one in self._vms.values():
            seen[one.lease.id] = seen_part(one.begun_at * 60.0, now, is_rolling=True)
            load = rolling_load(one.readings, now)
            if load is not None:
                by_kind.setdefault(one.arrival.kind.profile, []).append(100 * load.mean)
        kinds = {profile: sum(loads) / len(loads) for profile, loads in by_kind.items()}
        loads = {place: float(load.percent) for place, load in self._loads(minute).items()}
        view = FleetView(None, loads, unmeasured=UnmeasuredLoad(seen, kinds))
        request = request_of(arrival.kind.profile, name=arrival.name, vcpus=1, memory_mib=64)
        placement = Fleet(self._capacities, [one.lease for one in self._vms.values()], view=view).place(request, POLICY)
        self.tally.arrived += 1
        if placement is None:
            self.tally.refused += 1
            return
        demand = Demand(arrival.kind, hash_of(self._seed, arrival.name), self._step)
        guess = ShareLoad(kinds.get(arrival.kind.profile, 100 * arrival.kind.size_gib / 48))
        lease = _lease(arrival.name, placement)
        self._vms[arrival.name] = RunningVm(arrival, request, lease, demand, minute, self._step, last_load=guess)

    def _balance(self, minute: int) -> None:
        """One run of `rebalance --above`, with what the budget of the hour leaves."""
        while self._moved_at and self._moved_at[0] <= minute - HOUR:
            self._moved_at.popleft()
        barred: dict[str, set[str]] = {}
        while self._make_moves(minute, barred):
            pass

    def _make_moves(self, minute: int, barred: dict[str, set[str]]) -> bool:
        """Make moves of one plan; True if a host refused a VM, so that another plan is needed."""
        for found in find_balancing(self._measured(minute), self._above, barred=barred):
            if len(self._moved_at) >= self._per_hour:
                return False
            if refuses(self._seed, found.vm.name, found.placement.host):
                self.tally.refused_moves += 1
                barred.setdefault(found.vm.vm_uuid, set()).add(found.placement.host)
                return True
            moved = self._vms[found.vm.name]
            moved.lease, moved.begun_at = _lease(found.vm.name, found.placement), minute
            moved.readings.clear()
            moved.last_load = found.load
            self._moved_at.append(minute)
            self.tally.moves += 1
        return False

    def _measured(self, minute: int) -> LoadedFleet:
        """The fleet by its readings. A VM that just moved has the load that it had."""
        shares, unmoved = {}, set()
        for one in self._vms.values():
            load = share_load([(at, mean) for at, mean, _ in one.readings], minute * 60.0)
            if load is None:
                unmoved.add(one.lease.id)
            shares[one.lease.id] = load or one.last_load
        return LoadedFleet(
            self._capacities,
            tuple(one.lease for one in self._vms.values()),
            {one.lease.vm_uuid: one.placed for one in self._vms.values()},
            shares,
            unmoved=unmoved,
        )

    def _judge(self) -> None:
        """Count a time at which a card is above the limit and another one could take one of its VMs."""
        by_card = self._by_card()
        loads = {place: 100 * sum(one.mean_wanted for one in there) for place, there in by_card.items()}
        helped = 0
        for place, there in by_card.items():
            if loads[place] > ABOVE:
                helped += any(
                    loads[other] + 100 * one.mean_wanted <= ABOVE and _takes(one, by_card[other])
                    for one in there
                    for other in self._cards
                    if other != place
                )
        self.tally.judged += 1
        self.tally.cards += len(self._cards)
        self.tally.card_times += helped
        self.tally.overloaded += helped > 0


def _takes(one: RunningVm, there: Sequence[RunningVm]) -> bool:
    """True if an A40 with these VMs takes one more of this size: all of one size, 48 GiB together."""
    size = one.arrival.kind.size_gib
    return all(other.arrival.kind.size_gib == size for other in there) and (len(there) + 1) * size <= 48


def _lease(name: str, placement: Placement) -> Lease:
    shares = tuple(kind_of(share.sharing).named(share, name) for share in placement.shares)
    (lease,) = leases_of(replace(placement, shares=shares), vm_name=name)
    return lease


def _card(address: str) -> EmulatedGpu:
    """An A40 with as many VFs as its smallest vGPUs here need."""
    return EmulatedGpu(catalog.board("nvidia-a40"), address, "vf-profile", vf_count=8)


def hash_of(seed: int, name: str) -> int:
    """A seed of a VM's own, the same in each run."""
    return random.Random(f"{seed} {name}").getrandbits(48)


def refuses(seed: int, vm: str, host_name: str) -> bool:
    """True if the host does not take the VM: the same answer in each run."""
    return random.Random(f"{seed} {vm} {host_name}").random() < REFUSED


def run(
    hosts: int, days: int, seed: int, fill: float, moves_per_hour: int, above: float = ABOVE, step: int = 5
) -> Tally:
    """One week of one fleet."""
    return Week(hosts, moves_per_hour, seed, above, step).play(arrivals(hosts, days, fill, seed), days * DAY)


def main() -> int:
    """Play the week with each budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=40)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fill", type=float, default=0.6, help="part of the framebuffer that VMs want in the mean")
    parser.add_argument("--moves-per-hour", type=int, nargs="+", default=[0, 8, 20], help="budgets, 0 for no moves")
    parser.add_argument("--above", type=float, default=ABOVE, help="--above of rebalance; the judge stays at 70 %%")
    parser.add_argument("--step", type=int, default=5, choices=(1, 3, 5), help="minutes between readings, and plans")
    given = parser.parse_args()
    figures = {}
    for budget in given.moves_per_hour:
        began = time.process_time()
        tally = run(given.hosts, given.days, given.seed, given.fill, budget, given.above, given.step)
        found = figures[str(budget)] = tally.as_json()
        spent_s = round(time.process_time() - began)
        print(
            f"{budget} moves an hour: {found['overloaded']:.1%} of the time overloaded, {found}, {spent_s} s",
            flush=True,
        )
    print(json.dumps({"given": vars(given), "budgets": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
