# SPDX-License-Identifier: Apache-2.0
"""A world whose slowdowns are known: measurements are drawn from it, and predictions are held against it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from vgpuctl.scheduler.performance.measurement import Measurement

CLASSES = ("inference", "render", "training", "vdi")
_PRESSURE = {"training": 0.8, "render": 0.6, "inference": 0.4, "vdi": 0.15}
_PATIENCE = {"training": 1.0, "render": 1.0, "inference": 1.3, "vdi": 0.7}


@dataclass
class TrueModel:
    """Costs of neighbours, drawn once. noise: relative, of a measurement; vm_noise: of a VM against its class."""

    seed: int = 1
    profiles: Sequence[str] = ("A40-8Q", "A40-12Q", "A40-24Q")
    noise: float = 0.05
    vm_noise: float = 0.05
    costs: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        dice = random.Random(self.seed)
        for own in CLASSES:
            for other in CLASSES:
                usual = _PRESSURE[other] * _PATIENCE[own] * dice.uniform(0.85, 1.15)
                for profile in self.profiles:
                    self.costs[own, other, profile] = max(0.0, usual + dice.gauss(0, 0.03))

    def throughput(self, own: str, profile: str, neighbours: Sequence[str]) -> float:
        """The throughput of the average VM of a class beside these."""
        return 1 / (1 + sum(self.costs[own, other, profile] for other in neighbours))

    def measure(self, vms: int, times: int, seed: int, classes: Sequence[str] = CLASSES) -> list[Measurement]:
        """Measure VMs of drawn classes, each beside drawn neighbours."""
        dice, found = random.Random(seed), []
        for number in range(vms):
            own, profile, bias = dice.choice(classes), dice.choice(self.profiles), dice.gauss(0, self.vm_noise)
            for _ in range(times):
                neighbours = tuple(sorted(dice.choice(classes) for _ in range(dice.choice((0, 1, 1, 2, 3)))))
                slowdown = 1 / self.throughput(own, profile, neighbours)
                slowdown *= max(0.2, 1 + bias + dice.gauss(0, self.noise))
                name = f"vm-{seed}-{number}"
                found.append(Measurement(name, "best-effort", own, profile, neighbours, 1 / slowdown))
        return found
