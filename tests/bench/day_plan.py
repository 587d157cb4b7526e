# SPDX-License-Identifier: Apache-2.0
"""A day of many tenants, made from a seed: who asks for what, when it goes again, and where a command is killed."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from vgpuctl import catalog
from vgpuctl_lab.simulated.machine.shape import PASSTHROUGH, CardShape, Shape

BEGIN = datetime(2026, 3, 31, 12, tzinfo=UTC).timestamp()
"""Noon before a month ends, so that GPU-hours of two months are counted in one day."""

POOL = "gold"
NOW = ("--timeout", "0")
ROUND = ("controller", "--once", "--shutdown-timeout", "0")
_KILLED = {"create": 11, "gang": 22, "delete": 9, "stop": 7, "start": 7, "round": 20, "drop": 9}
"""Kinds of steps that are killed, and up to which side effect."""

_POLICIES = ("fifo", "priority", "shortest-first", "fair-share")


@dataclass(frozen=True)
class Step:
    """One step of the day: a command that an operator types at a time.

    kill: after which side effect it is killed, 0 for never. name: the VM or reservation.
    """

    at: float
    kind: str
    arguments: tuple[str, ...] = ()
    tenant: str = ""
    name: str = ""
    kill: int = 0


@dataclass(frozen=True)
class TenantPlan:
    """One tenant with the arguments of create-tenant."""

    name: str
    quotas: tuple[str, ...]


@dataclass
class Day:
    """The plan. pool: the hosts that only some tenants may use."""

    tenants: list[TenantPlan] = field(default_factory=list)
    pool: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Scale:
    """How large the day is. round_s: from one round of the controller to the next. clusters: node pools, each second
    one of a Slurm cluster.
    """

    hours: float
    vms: int
    tenants: int
    round_s: float
    killed: float
    mean_life_s: float
    clusters: int = 0


def plan_day(shapes: Sequence[Shape], scale: Scale, seed: int) -> Day:
    """The same fleet, scale and seed give the same day."""
    dice = random.Random(seed)
    cards = [card for shape in shapes for card in shape.cards]
    day = Day(_tenants(cards, scale, dice))
    if len(shapes) >= 10:
        names = [shape.hostname for shape in shapes]
        day.pool = tuple(sorted(dice.sample(names, len(names) // 10)))
        day.granted = tuple(one.name for one in day.tenants[:2])
    end = BEGIN + scale.hours * 3600
    makes = _Maker(day, scale, dice, cards)
    for number in range(scale.vms):
        makes.vm(f"vm-{number:04}", _arrival(scale, dice))
    for number in range(scale.clusters):
        makes.cluster(number)
    for number in range(math.ceil(scale.hours / 2)):
        makes.reservation(f"res-{number}", BEGIN + dice.uniform(0, max(scale.hours - 3, 0.1)) * 3600)
    for number in range(1, round(scale.hours * 3600 / scale.round_s) + 1):
        makes.add(Step(BEGIN + number * scale.round_s, "round", ROUND))
    for number, policy in enumerate(_POLICIES[1:], 1):
        at = BEGIN + scale.hours * 3600 * number / len(_POLICIES)
        makes.add(Step(at, "set-queue", ("set-queue", policy, "--ageing", "2h")))
    day.steps = sorted((one for one in day.steps if one.at <= end), key=lambda one: one.at)
    return day


def offers(card: CardShape) -> list[str]:
    """Requests of tenants for a card: whole, or its larger vGPU types of one series."""
    board = catalog.board_by_pci(card.vendor, card.device, card.subsystem)
    assert board is not None, f"{card.model} is not in the catalogue"
    if card.interface == PASSTHROUGH:
        return [f"passthrough:{board.key}"]
    types = [one for one in catalog.types_of(board) if not one.is_mig_backed]
    series = "Q" if any(one.series == "Q" for one in types) else "C"
    names = [one.name for one in types if one.series == series and one.fb_mib * 6 >= board.memory_mib]
    return [*names, f"2*{names[-2]}"]


def _tenants(cards: Sequence[CardShape], scale: Scale, dice: random.Random) -> list[TenantPlan]:
    """The first has no quota; the others have shares of the fleet that add up to more than it, and a guarantee."""
    share_gib = sum(card.memory_mib for card in cards) // 1024 // scale.tenants
    framebuffer = (
        "--quota", f"framebuffer={share_gib * 3 // 2}GiB", "--guaranteed", f"framebuffer={share_gib * 2 // 3}GiB",
    )  # fmt: skip
    profiles = sorted({name for card in cards for name in offers(card) if "*" not in name and ":" not in name})
    further = [
        ("--quota", f"gpu-hours={len(cards) * scale.hours / scale.tenants / 4:.2f}"),
        ("--quota", f"shares:{dice.choice(profiles)}={max(1, len(cards) // 10)}"),
        ("--quota", f"cards={max(1, len(cards) // 30)}", "--quota", f"vms={max(2, len(cards) // 4)}"),
        ("--quota", f"vcpus={len(cards) * 3}", "--quota", f"memory={len(cards) * 40}GiB"),
    ]
    policy = ("--reclaim", "requeue", "--grace", "0")
    found = [TenantPlan("tenant-00", policy[2:])]
    for number in range(1, scale.tenants):
        found.append(TenantPlan(f"tenant-{number:02}", (*policy, *framebuffer, *further[number % len(further)])))
    return found


def _arrival(scale: Scale, dice: random.Random) -> float:
    """More by day than by night: the middle of the replay is its busiest time."""
    while True:
        part = dice.random()
        if dice.random() < 0.25 + 0.75 * math.sin(math.pi * part) ** 2:
            return BEGIN + part * scale.hours * 3600


class _Maker:
    """Adds the steps of one VM or reservation to a day."""

    def __init__(self, day: Day, scale: Scale, dice: random.Random, cards: Sequence[CardShape]) -> None:
        self._day = day
        self._scale = scale
        self._dice = dice
        self._cards = cards

    def add(self, step: Step) -> None:
        """Add a step, to be killed or not."""
        kill, most = 0, _KILLED.get(step.kind)
        if most is not None and self._dice.random() < self._scale.killed:
            kill = self._dice.randint(1, most)
        self._day.steps.append(Step(step.at, step.kind, step.arguments, step.tenant, step.name, kill))

    def vm(self, name: str, at: float) -> None:
        """A VM, or a gang of them: created at once or through the queue, with an end or open; stopped at times."""
        dice, tenant = self._dice, self._tenant()
        life_s = min(max(dice.expovariate(1 / self._scale.mean_life_s), 600), 4 * self._scale.mean_life_s)
        gpu = dice.choice(offers(dice.choice(self._cards)))
        gpus = () if dice.random() < 0.05 else ("--gpu", gpu)
        size = ("--vcpus", str(dice.choice((2, 4, 8))), "--memory", f"{dice.choice((16, 64, 160))}GiB")
        asked = [*_of(tenant), *gpus, *size, "--network", "none", *self._importance()]
        has_end = dice.random() < 0.5
        if has_end:
            asked += ["--for", f"{max(1, round(life_s / 60))}m"]
        if dice.random() < 0.06 and not gpu.startswith("2*"):
            count = dice.randint(2, 3)
            self.add(
                Step(
                    at, "gang", ("create-vm", name, "--count", str(count), "--gang", "--preempt", *asked), tenant, name
                )
            )
            for number in range(1, count + 1):
                self._delete(f"{name}-{number}", tenant, at + life_s * dice.uniform(1, 1.3))
            return
        through = ("--queue",) if dice.random() < 0.7 else ("--shutdown-timeout", "0")
        through = (*through, "--preempt", "--grace", "0")
        create = ("create-vm", name, *asked, *through)
        self.add(Step(at, "create", create, tenant, name))
        if dice.random() < 0.05:
            self.add(Step(at + life_s / 8, "again", create, tenant, name))
        if not has_end and dice.random() < 0.2:
            hold = dice.choice(("keep", "release"))
            stop = ("stop-vm", name, *_of(tenant), "--hold", hold, *NOW)
            self.add(Step(at + life_s / 4, "stop", stop, tenant, name))
            self.add(Step(at + life_s / 2, "start", ("start-vm", name, *_of(tenant)), tenant, name))
        self._delete(name, tenant, at + life_s * (1.2 if has_end else 1))

    def reservation(self, name: str, at: float) -> None:
        """A reservation for later, the VM that uses it, and the end of both."""
        dice, tenant = self._dice, self._tenant()
        begin = at + dice.uniform(0.5, 2) * 3600
        end = begin + dice.uniform(0.5, 1.5) * 3600
        gpu = dice.choice(offers(dice.choice(self._cards)))
        window = ("--from", _time(begin), "--until", _time(end))
        self.add(Step(at, "reserve", ("reserve", name, *_of(tenant), "--gpu", gpu, *window), tenant, name))
        self.add(Step(begin + 5, "round", ROUND))
        size = ("--vcpus", "2", "--memory", "8GiB", "--network", "none", "--shutdown-timeout", "0")
        use = ("create-vm", name, *_of(tenant), "--reservation", name, *size)
        self.add(Step(begin + 10, "use", use, tenant, name))
        self._delete(name, tenant, end + 900)
        self.add(Step(end + 910, "cancel", ("cancel-reservation", "--yes", name, *_of(tenant)), tenant, name))

    def cluster(self, number: int) -> None:
        """A node pool: the autoscaler of a Kubernetes cluster asks for other sizes, jobs of Slurm for named nodes."""
        dice, tenant = self._dice, self._tenant()
        is_slurm, most, end = bool(number % 2), dice.randint(3, 8), BEGIN + self._scale.hours * 3600
        name = f"{'slurm' if is_slurm else 'kube'}-{number}"
        card = dice.choice([one for one in self._cards if one.interface != PASSTHROUGH] or self._cards)
        gpu = dice.choice([one for one in offers(card) if "*" not in one])
        shape = ("--role", "slurm" if is_slurm else "k3s", "--max", str(most), "--gpu", gpu, *self._importance())
        size = ("--vcpus", "4", "--memory", "16GiB", "--network", "none", "--spread", dice.choice(("none", "apart")))
        least = ("--min", "0" if is_slurm else str(dice.randint(0, 2)))
        begin = BEGIN + dice.uniform(0, 0.1) * self._scale.hours * 3600
        create = ("create-node-pool", name, *_of(tenant), *shape, *size, *least, "--may-preempt")
        self.add(Step(begin, "pool", create, tenant, name))
        at = begin
        while (at := at + dice.expovariate(2 / 3600)) < end:
            if is_slurm:
                first = dice.randint(1, most)
                nodes = f"{name}-[{first:03}-{dice.randint(first, most):03}]"
                self.add(Step(at, "resume", ("slurm-resume", nodes, *_of(tenant)), tenant, name))
                over = min(at + dice.expovariate(1 / 3600), end)
                self.add(Step(over, "suspend", ("slurm-suspend", nodes, *_of(tenant)), tenant, name))
            else:
                size_then = str(dice.randint(int(least[1]), most))
                self.add(Step(at, "scale", ("scale-node-pool", name, size_then, *_of(tenant)), tenant, name))
        if dice.random() < 0.5:
            drop = ("delete-node-pool", name, *_of(tenant), "--yes", "--drained", *NOW)
            self.add(Step(begin + dice.uniform(0.5, 1) * (end - begin), "drop", drop, tenant, name))

    def _delete(self, name: str, tenant: str, at: float) -> None:
        self.add(Step(at, "delete", ("delete-vm", name, *_of(tenant), "--yes", *NOW), tenant, name))

    def _tenant(self) -> str:
        return self._dice.choice(self._day.tenants).name

    def _importance(self) -> tuple[str, ...]:
        drawn = self._dice.random()
        if drawn < 0.3:
            return ("--priority", "low", "--preemptible", self._dice.choice(("stop", "requeue")))
        return ("--priority", "normal" if drawn < 0.8 else "high" if drawn < 0.95 else "critical")


def _of(tenant: str) -> tuple[str, str]:
    return ("--tenant", tenant)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
