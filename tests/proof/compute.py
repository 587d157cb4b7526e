# SPDX-License-Identifier: Apache-2.0
"""Compute time that is asked for, on generated GPUs: nothing is given that the GPU does not keep once it is full.

Each GPU has a model, a scheduler, one size or mixed ones, and in a part of the cases types that its layout allows. VMs
ask for vGPUs with compute time; what is left of the GPU is filled with its smallest vGPUs. Then each VM that was given
its part must have it while all of them want everything, by NVIDIA's words for the scheduler (reference host interfaces,
3.4): fixed share gives one part of as many as the GPU takes of the type, equal share one part of as many as there are.

A case is a promise that was given. `python -m tests.proof.compute --cases 10000 [--seed 41]`
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import host, leases_of
from tests.unit.fleet_factory import vm as request_of
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import SchedulerFacts
from vgpuctl.model.layout import GpuLayout, GpuMatch, SchedulerPolicy, VgpuLayout
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.fleet import Fleet

BOARDS = {"nvidia-a40": 32, "nvidia-l40s": 32, "nvidia-a100-pcie-40gb": 16, "nvidia-l4": 32}
"""Models, and how many VFs they have."""
_LEAST = (None, 1.0, 3.1, 6.2, 12.5, 16.6, 25.0, 33.3, 50.0, 100.0)
_KINDS = (None, None, "at-least", "guaranteed", "best-effort")
_ASKING, _MOST = 6, 40


@dataclass(frozen=True)
class Promise:
    """A share that was given. least: its part of the GPU. is_guaranteed: it must not depend on neighbours."""

    share: Share
    least: Fraction
    is_guaranteed: bool


class BrokenPromise(Exception):
    """A share was given that its GPU does not keep."""


def generate(chance: random.Random) -> HostCapacity:
    """A host with one GPU that carries nothing."""
    key, vfs = chance.choice(list(BOARDS.items()))
    gpu = EmulatedGpu(catalog.board(key), "0000:41:00.0", "vf-profile", vf_count=vfs)
    policy = chance.choice([None, *SchedulerPolicy])
    if policy is not SchedulerPolicy.FIXED_SHARE:
        gpu = replace(gpu, is_mixed=chance.random() < 0.5)
    facts = replace(gpu.facts(), scheduler=None if policy is None else SchedulerFacts(policy))
    allowed: tuple[str, ...] = ()
    if chance.random() < 0.3:
        allowed = tuple(chance.sample(_names(key), 4))
    layout = GpuLayout(GpuMatch(), VgpuLayout(types=allowed), "gpu1.yml:3")
    return replace(host("gpu1", facts), declared=(layout,))


def _names(key: str) -> list[str]:
    types = [one for one in catalog.types_of(catalog.board(key)) if not one.is_mig_backed]
    return [one.name for one in types]


def fill(capacity: HostCapacity, chance: random.Random) -> tuple[list[Promise], int]:
    """Place VMs until none fits. Returns what was promised, and how many requests were refused."""
    (gpu,) = capacity.facts.gpus
    types = sorted(gpu.types, key=lambda one: one.framebuffer_mib or 0)
    names = [catalog.short_name(one.name) for one in types]
    leases, promises, refused = list[Lease](), list[Promise](), 0
    undeclared = Fleet([replace(capacity, declared=())])
    for number in range(chance.choice((0, 0, 0, 1, 3))):  # there since before the layout was as it is
        there = undeclared.place(request_of(names[0]))
        if there is not None:
            leases += leases_of(there, vm_name=f"old-{number}")
            undeclared.take("gpu1", leases[-1:])
    fleet = Fleet([capacity], leases)
    for number in range(_MOST):
        name, least, kind = names[0], None, None
        if number < _ASKING:
            name, least, kind = chance.choice(names), chance.choice(_LEAST), chance.choice(_KINDS)
            least = None if kind == "best-effort" else least
        conditions = [f"compute>={least}%"] * (least is not None) + [f"compute={kind}"] * (kind is not None)
        found = fleet.place(request_of(",".join([name, *conditions])))
        is_promise = bool(conditions) and (least is not None or kind != "best-effort")
        if found is None:
            refused += is_promise
            found = next((one for each in names if (one := fleet.place(request_of(each))) is not None), None)
            is_promise = False
        if found is None:
            break
        made = leases_of(found, vm_name=f"vm-{number}")
        fleet.take("gpu1", made)
        leases += made
        if is_promise:
            promises.append(Promise(found.shares[0], Fraction(str(least or 0)) / 100, kind == "guaranteed"))
    for promise in promises:
        check(promise, capacity, leases)
    return promises, refused


def check(promise: Promise, capacity: HostCapacity, leases: Sequence[Lease]) -> None:
    """Raise BrokenPromise if the share has less of its GPU's time than was promised."""
    (gpu,) = capacity.facts.gpus
    policy = None if gpu.scheduler is None else gpu.scheduler.policy
    offered = next(one for one in gpu.types if catalog.short_name(one.name) == promise.share.profile)
    if len(leases) == 1 and offered.max_instances == 1:
        part, depends = Fraction(1), False
    elif policy == SchedulerPolicy.FIXED_SHARE and offered.max_instances:
        part, depends = Fraction(1, offered.max_instances), False
    elif policy == SchedulerPolicy.EQUAL_SHARE:
        part, depends = Fraction(1, len(leases)), True
    else:
        part, depends = Fraction(0), True
    if part < promise.least or not part or (promise.is_guaranteed and depends):
        raise BrokenPromise(
            f"{promise.share.profile} on a GPU with {policy}, {len(leases)} vGPUs, mixed sizes {gpu.heterogeneous}:"
            f" {float(part):.1%} of it, {float(promise.least):.1%} promised, guaranteed {promise.is_guaranteed}"
        )


def run(cases: int, seed: int) -> Counter[str]:
    """Look at so many promises. Returns how many were given and refused. Raises BrokenPromise."""
    chance, found = random.Random(seed), Counter[str]()
    while found["given"] < cases:
        promises, refused = fill(generate(chance), chance)
        found.update(gpus=1, given=len(promises), refused=refused)
    return found


def main() -> int:
    """Run the cases of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=41)
    given = parser.parse_args()
    try:
        print(json.dumps({**run(given.cases, given.seed), "broken": 0, "seed": given.seed}))
    except BrokenPromise as fault:
        print(f"FAULT: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
