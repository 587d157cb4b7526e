# SPDX-License-Identifier: Apache-2.0
"""The policy `predicted` on a simulated fleet whose slowdowns are known, against other policies on the same stream.

VMs of four workload classes come and go on hosts with A40s. The true model says what each gets beside its neighbours.
The fitted model learns from measurements with noise, as many as --measured says, and is judged on VMs that it has not
seen: error, and part inside the 90 % interval. Then each policy places the same stream, and the throughput that all VMs
got is added up over time.

The last line of stdout is JSON. Run it with `python -m tests.bench.predicted_policy [--hosts 24] [--vms 1500]`.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.unit.fleet_factory import GIB, emulated_a40, host, leases_of, vm
from tests.unit.scheduler.performance.true_model import TrueModel
from vgpuctl.model.lease import Lease
from vgpuctl.model.policy import parse_policy
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.kept_fleet import KeptFleet
from vgpuctl.scheduler.performance.fit import fit
from vgpuctl.scheduler.performance.model import PerformanceModel, Prediction
from vgpuctl.scheduler.scorer import FleetView
from vgpuctl.sharing.kinds import kind_of

PROFILES = {
    "training": ("A40-12Q", "A40-24Q"),
    "render": ("A40-12Q",),
    "inference": ("A40-8Q", "A40-12Q"),
    "vdi": ("A40-8Q",),
}
DEMAND = {"training": 0.95, "render": 0.7, "inference": 0.45, "vdi": 0.2}
"""Part of a GPU's time that a VM of a class uses alone."""

POLICIES = ("fragmentation", "binpack", "spread", "least-utilised", "predicted", "predicted:0.8+fragmentation:0.2")


@dataclass(frozen=True)
class Arrival:
    """One VM of the stream, from its arrival to its end, in hours."""

    name: str
    workload: str
    profile: str
    at: float
    until: float


def stream(count: int, cards: int, load: float, seed: int) -> list[Arrival]:
    """VMs with exponential gaps and lives; in the mean they want `load` of the fleet's framebuffer."""
    dice, found, at = random.Random(seed), [], 0.0
    life_h = 6.0
    size = 13.0
    rate = load * cards * 48 / size / life_h
    for number in range(count):
        at += dice.expovariate(rate)
        workload = dice.choice(sorted(PROFILES))
        profile = dice.choice(PROFILES[workload])
        found.append(Arrival(f"vm-{number}", workload, profile, at, at + dice.expovariate(1 / life_h)))
    return found


class Run:
    """One policy on one stream."""

    def __init__(self, policy: str, hosts: int, world: TrueModel, model: PerformanceModel) -> None:
        self._policy, self._world, self._model = parse_policy(policy), world, model
        self._capacities = [
            host(f"gpu{number:03d}", emulated_a40("0000:41:00.0"), emulated_a40("0000:51:00.0"), cpus=512,
                 memory_mib=4096 * GIB)
            for number in range(hosts)
        ]  # fmt: skip
        self._kept = KeptFleet()
        self._there: dict[str, tuple[Arrival, Lease]] = {}
        self._workloads: dict[str, str] = {}
        self.work = self.wished = 0.0
        self.refused = 0
        self.spent_s = 0.0

    def play(self, arrivals: Sequence[Arrival]) -> None:
        """Place every VM, and let time pass between arrivals."""
        now = 0.0
        for one in arrivals:
            self._pass(now, one.at)
            now = one.at
            self._place(one)
        self._pass(now, now + 1)

    def _place(self, one: Arrival) -> None:
        leases = [lease for _, lease in self._there.values()]
        utilisation = self._utilisation() if self._policy.names[0] == "least-utilised" else {}
        is_predicted = any(name == "predicted" for name in self._policy.names)
        view = FleetView(None, utilisation, self._model if is_predicted else None, self._workloads)
        fleet: Fleet = self._kept.with_hosts(self._capacities, leases, view)
        request = replace(vm(one.profile, name=one.name, vcpus=1, memory_mib=64), workload=one.workload)
        began = time.perf_counter()
        placement = fleet.place(request, self._policy)
        self.spent_s += time.perf_counter() - began
        if placement is None:
            self.refused += 1
            return
        shares = tuple(kind_of(share.sharing).named(share, one.name) for share in placement.shares)
        (lease,) = leases_of(replace(placement, shares=shares), vm_name=one.name)
        self._there[one.name] = (one, lease)
        self._workloads = {**self._workloads, lease.vm_uuid: one.workload}

    def _pass(self, begin: float, end: float) -> None:
        """Add up what every VM got, from event to event."""
        while begin < end:
            first = min((one.until for one, _ in self._there.values()), default=end)
            until = min(end, max(begin, first))
            self._count(until - begin)
            begin = until
            for name in [name for name, (one, _) in self._there.items() if one.until <= begin]:
                del self._there[name]
            if not self._there:
                begin = end

    def _count(self, hours: float) -> None:
        company: dict[tuple[str, str], list[Arrival]] = {}
        for one, lease in self._there.values():
            company.setdefault((lease.host, lease.share.gpu), []).append(one)
        for there in company.values():
            for one in there:
                others = [other.workload for other in there if other is not one]
                self.work += hours * self._world.throughput(one.workload, one.profile, others)
                self.wished += hours

    def _utilisation(self) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = {}
        for one, lease in self._there.values():
            place = (lease.host, lease.share.gpu)
            found[place] = min(100.0, found.get(place, 0.0) + round(100 * DEMAND[one.workload]))
        return found


def judge(world: TrueModel, model: PerformanceModel) -> dict[str, float]:
    """Error and coverage on VMs that the fit has not seen."""
    inside = count = refused = 0
    squares = 0.0
    for one in world.measure(4000, 1, seed=10_001):
        found = model.predict(one.isolation, one.workload, one.profile, one.neighbours)
        if not isinstance(found, Prediction):
            refused += 1
            continue
        count += 1
        inside += found.low <= one.throughput <= found.high
        squares += (found.throughput - world.throughput(one.workload, one.profile, one.neighbours)) ** 2
    return {
        "rmse": round(math.sqrt(squares / max(1, count)), 4),
        "inside_90": round(inside / max(1, count), 3),
        "refused": round(refused / (count + refused), 3),
    }


def decisions_per_second(policy: str, model: PerformanceModel, hosts: int) -> int:
    """The speed of the last 1,000 of 6,000 placements on hosts with four A40s."""
    capacities = [
        host(f"gpu{number:04d}", *(emulated_a40(f"0000:{0x41 + card:02x}:00.0") for card in range(4)), cpus=512)
        for number in range(hosts)
    ]
    workloads: dict[str, str] = {}
    view = FleetView(model=model if policy == "predicted" else None, workloads=workloads)
    fleet, dice, began = Fleet(capacities, (), parse_policy(policy), view), random.Random(1), 0.0
    for number in range(6000):
        if number == 5000:
            began = time.perf_counter()
        workload = dice.choice(sorted(PROFILES))
        request = vm(dice.choice(PROFILES[workload]), name=f"vm-{number}", vcpus=1, memory_mib=64)
        placement = fleet.place(replace(request, workload=workload))
        assert placement is not None
        shares = tuple(kind_of(share.sharing).named(share, request.name) for share in placement.shares)
        leases = leases_of(replace(placement, shares=shares), vm_name=request.name)
        fleet.learn_workloads({leases[0].vm_uuid: workload})
        fleet.take(placement.host, leases)
    return round(1000 / (time.perf_counter() - began))


def main() -> None:
    """Judge the model, then play the stream under each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=24)
    parser.add_argument("--vms", type=int, default=1500)
    parser.add_argument("--load", type=float, default=0.6)
    parser.add_argument("--measured", type=int, default=150, help="VMs that were measured, four times each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--decisions", type=int, metavar="HOSTS", help="Only measure decisions a second on these hosts")
    given = parser.parse_args()
    world = TrueModel(given.seed, profiles=("A40-8Q", "A40-12Q", "A40-24Q"))
    if given.decisions is not None:
        learnt = fit(world.measure(given.measured, 4, seed=given.seed))
        speeds = {
            one: decisions_per_second(one, learnt, given.decisions) for one in ("fragmentation", "spread", "predicted")
        }
        print(json.dumps(speeds))
        return
    judged = {}
    for vms in (40, 80, given.measured, 4 * given.measured):
        judged[str(4 * vms)] = judge(world, fit(world.measure(vms, 4, seed=given.seed)))
        print(f"fitted from {4 * vms} measurements of {vms} VMs: {judged[str(4 * vms)]}")
    model = fit(world.measure(given.measured, 4, seed=given.seed))
    arrivals = stream(given.vms, 2 * given.hosts, given.load, given.seed)
    policies = {}
    for policy in POLICIES:
        run = Run(policy, given.hosts, world, model)
        run.play(arrivals)
        policies[policy] = {
            "throughput": round(run.work / run.wished, 4),
            "work_vm_hours": round(run.work, 1),
            "refused": run.refused,
            "place_ms": round(1000 * run.spent_s / len(arrivals), 2),
        }
        print(f"{policy}: {policies[policy]}")
    print(json.dumps({"given": vars(given), "judged": judged, "policies": policies}))


if __name__ == "__main__":
    main()
