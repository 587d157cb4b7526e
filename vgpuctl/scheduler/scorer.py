# SPDX-License-Identifier: Apache-2.0
"""Scores allowed placements under a policy, the best first. Other modules decide what is allowed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.model.constraints import Label
from vgpuctl.model.lease import Share
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.policy import DEFAULT_POLICY, Policy, PolicyName, parse_policy
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.partitions import loss_of_shares
from vgpuctl.scheduler.performance.interval import Unpredictable
from vgpuctl.scheduler.performance.job_times import BoardSpeed
from vgpuctl.scheduler.performance.measurement import UNLABELLED
from vgpuctl.scheduler.performance.model import Impact, PerformanceModel, Prediction, predict_impact
from vgpuctl.scheduler.rolling import RollingLoad
from vgpuctl.scheduler.scarcity import loss_of, loss_of_all
from vgpuctl.scheduler.unmeasured import UnmeasuredLoad
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of, takes_card
from vgpuctl.sharing.offer import Offer
from vgpuctl.sharing.partition_rules import needs_partition
from vgpuctl.sharing.refusals import memory_of
from vgpuctl.sharing.topology import FARTHEST, GpuPlace, Nearness, direct_links, nearness, nvlink_labels

BEST_EFFORT, MIG = "best-effort", "mig"

UNPREDICTABLE = 0.5
"""The cost under `predicted` where measurements are missing, as if one whole VM were lost."""

ALONE = Impact(Prediction(1.0, 1.0, 1.0, 0, 0))
"""What a VM with a whole card has."""

MOST_BUSES = 1e6

FEW_LINKS = 0.5
"""What a single NVLink between two GPUs adds to their distance; N links add an Nth of it."""


@dataclass(frozen=True)
class FleetView:
    """The inputs of policies beside facts and leases.

    last_host: where the VM before was placed, for `round-robin`. utilisation_percent: as measured, by host name and
    GPU address, for `least-utilised`; a GPU that is not there counts as idle. unmeasured: what shares add to it that
    came after the reading; None where all are in it. model, workloads: for `predicted`: the fitted throughput, and the
    workload class of each VM that has one, by UUID.
    """

    last_host: str | None = None
    utilisation_percent: Mapping[tuple[str, str], float] = field(default_factory=dict)
    model: PerformanceModel | None = None
    workloads: Mapping[str, str] = field(default_factory=dict)
    unmeasured: UnmeasuredLoad | None = None


NOTHING_MORE = FleetView()


def policies_of(request: VmRequest, capacities: Sequence[HostCapacity]) -> frozenset[PolicyName]:
    """The policies that a request or a host names."""
    named = {request.constraints.policy, *(one.constraints.policy for one in capacities)}
    return frozenset(name for text in named if text is not None for name in parse_policy(text).names)


def view_of(
    request: VmRequest,
    capacities: Sequence[HostCapacity],
    last_host: str | None,
    *,
    loads: Mapping[tuple[str, str], RollingLoad] | None = None,
    unmeasured: UnmeasuredLoad | None = None,
    model: PerformanceModel | None = None,
    workloads: Mapping[str, str] | None = None,
) -> FleetView:
    """The inputs of a request's policies. loads: of the kept history; a GPU without counts by its last reading.

    Utilisation and the model are left out where none asks for them, because they make GPUs differ that are equal
    otherwise.
    """
    named = policies_of(request, capacities)
    view = FleetView(last_host)
    if PolicyName.LEAST_UTILISED in named:
        at_once = {
            (one.name, gpu.address): float(gpu.utilisation_percent)
            for one in capacities
            for gpu in one.facts.gpus
            if gpu.utilisation_percent is not None
        }
        rolling = {place: float(load.percent) for place, load in (loads or {}).items()}
        view = replace(view, utilisation_percent={**at_once, **rolling}, unmeasured=unmeasured)
    if PolicyName.PREDICTED in named:
        view = replace(view, model=model or PerformanceModel(), workloads=workloads or {})
    return view


Price = tuple[float, ...]
"""What a placement costs under a policy, smallest best: the size given for conditions, preferred labels that are
missing, the host's and the GPU's score, the loss of the NVSwitch fabric, then the waste. What is left equal goes by
host name and GPU address.

Under `fragmentation` alone: 0, preferred labels that are missing, whole cards that could have been shared, the loss of
the fabric, the loss in MiB, other untouched GPUs of the host when one is opened, what is left on the GPU, the part of
the loss that comes from opening a GPU.
"""

LOSS = 4
"""Where the loss stands in a price under `fragmentation`."""

OPENING = -1
"""Where the part of the loss stands that comes from opening a GPU."""


@dataclass(frozen=True)
class Scorer:
    """A policy and the labels that are preferred. Scores are weighted sums of costs from 0 (best) to 1 (worst).

    model, workload: for `predicted`, the fitted throughput and the workload class of the VM.
    distances: between GPUs of the host that is looked at, by address, as far as they are known already.
    """

    policy: Policy = DEFAULT_POLICY
    preferred: tuple[Label, ...] = ()
    model: PerformanceModel | None = field(default=None, compare=False)
    workload: str = UNLABELLED
    distances: Mapping[tuple[str, str], float] = field(default_factory=dict, compare=False)

    def with_distances(self, states: Sequence[GpuState]) -> "Scorer":
        """The same scorer for many questions about one host's GPUs."""
        found = {}
        for one, other in combinations(states, 2):
            apart = distance(one, other)
            found[one.gpu.address, other.gpu.address] = found[other.gpu.address, one.gpu.address] = apart
        return replace(self, distances=found)

    def in_order(
        self, offers: Sequence[Offer], states: Mapping[str, GpuState], *, by_size: bool = False
    ) -> list[Offer]:
        """Offers of one host for one want, the best first; equal ones by waste, GPU address and type name.

        by_size: the want names conditions, so the smallest type comes first whatever the policy is.
        """

        def key(offer: Offer) -> tuple[int, int, float, tuple[int, int, int], str, str]:
            size = offer.waste[0] if by_size else 0
            missing = self.missing(states[offer.share.gpu].constraints.labels)
            score = self._score_on(offer, states[offer.share.gpu], states)
            return (size, missing, score, offer.waste, offer.share.gpu, offer.share.profile)

        return sorted(offers, key=key) if len(offers) > 1 else list(offers)

    def missing(self, labels: frozenset[Label]) -> int:
        """How many of the preferred labels are not there."""
        return sum(label not in labels for label in self.preferred)

    def price_of(self, offer: Offer, state: GpuState, free: float, *, by_size: bool = False) -> Price:
        """The price of one share alone.

        free: the free part of the host's GPUs, 0 to 1; under `fragmentation` how many others are untouched, 0 where
        the GPU of the offer is not.
        """
        missing = self.missing(state.constraints.labels)
        fabric = state.fabric.loss if state.fabric is not None and needs_partition(offer.share) else 0.0
        if self.is_least_waste:
            could_be_shared = offer.waste[0] if takes_card(offer.share) else 0
            loss = loss_of(offer, state, int(free))
            return (0, missing, could_be_shared, fabric, loss.total, free, *offer.waste[2:], loss.opening)
        size = offer.waste[0] if by_size else 0
        total = 0.0
        for name, weight in self.policy.parts:
            if name in _OF_HOST:
                total += weight * _OF_HOST[name](free)
            else:
                total += weight * self._offer_cost(name, offer, state, {})
        return (size, missing, round(total, 9), self._score_on(offer, state, {}), fabric, *offer.waste)

    def price_of_all(
        self, shares: Sequence[Share], waste: tuple[int, ...], states: Mapping[str, GpuState], *, size_mib: int
    ) -> Price:
        """The cost of all shares of one VM on one host. states: all its GPUs, by address, as they were before."""
        missing = sum(self.missing(states[one.gpu].constraints.labels) for one in shares)
        fabric = loss_of_shares(shares, states.values()) if shares else 0.0
        if self.is_least_waste and shares:
            all_whole = all(takes_card(one) for one in shares)
            loss, beside = loss_of_all(shares, states)
            return (0, missing, waste[0] if all_whole else 0, fabric, loss.total, beside, *waste[2:], loss.opening)
        total = 0.0
        for name, weight in self.policy.parts:
            if name in _OF_HOST:
                total += weight * _OF_HOST[name](free_of_host(states.values()))
            elif name is PolicyName.LEAST_UTILISED:
                chosen = sorted({one.gpu for one in shares} or set(states))
                total += weight * self._utilised([states[address] for address in chosen])
            elif name is PolicyName.TOPOLOGY:
                total += weight * self.apart(shares, states)
            elif name is PolicyName.PREDICTED:
                total += weight * sum(self._lost(one, states[one.gpu]) for one in shares) / max(1, len(shares))
            elif name is PolicyName.FRAGMENTATION:
                total += weight * _opened(waste)
        return (size_mib, missing, round(total, 9), 0.0, fabric, *waste)

    def apart(self, shares: Sequence[Share], states: Mapping[str, GpuState]) -> float:
        """How far apart the GPUs of one VM are, 0 to 1: the mean over their pairs."""
        chosen = [states[one.gpu] for one in shares]
        pairs = [self._distance(one, other) for one, other in combinations(chosen, 2)]
        return sum(pairs) / len(pairs) if pairs else 0.0

    def wants_closeness(self) -> bool:
        """True if several GPUs of one VM should be near each other."""
        return PolicyName.TOPOLOGY in self.policy.names

    def wants_loads(self) -> bool:
        """True if it matters how much of a host is taken."""
        return any(name in _OF_HOST for name in self.policy.names)

    def takes_turns(self) -> bool:
        """True if equal hosts take turns rather than go by name."""
        return PolicyName.ROUND_ROBIN in self.policy.names

    @property
    def is_least_waste(self) -> bool:
        """True if `fragmentation` is the whole policy, so that the loss decides and not a score."""
        return self.policy.names == (PolicyName.FRAGMENTATION,)

    def _score_on(self, offer: Offer, state: GpuState, states: Mapping[str, GpuState]) -> float:
        if self.is_least_waste:
            return 0.0
        costs = (weight * self._offer_cost(name, offer, state, states) for name, weight in self.policy.parts)
        return round(sum(costs), 9)

    def _offer_cost(self, name: PolicyName, offer: Offer, state: GpuState, states: Mapping[str, GpuState]) -> float:
        if name is PolicyName.FRAGMENTATION:
            return _broken_up(offer, state)
        if name in _OF_HOST:
            return _OF_HOST[name](free_part(state))
        if name is PolicyName.LEAST_UTILISED:
            return self._utilised([state])
        if name is PolicyName.TOPOLOGY:
            given = [other for other in states.values() if other.given]
            return sum(self._distance(state, other) for other in given) / len(given) if given else 0.0
        if name is PolicyName.PREDICTED:
            return self._lost(offer.share, state)
        return 0.0

    def _lost(self, share: Share, state: GpuState) -> float:
        """The throughput that a share costs here, its own and its neighbours', from 0 to 1.

        The measure is the VM alone on the fastest GPU: a slower one costs what it is slower.
        """
        if self.model is None:
            return UNPREDICTABLE
        impact = impact_of(self.model, self.workload, share, state)
        speed = speed_of(self.model, self.workload, state)
        if isinstance(speed, Unpredictable):
            return UNPREDICTABLE
        own, lost = (1.0, 1.0) if isinstance(impact, Unpredictable) else (impact.own.throughput, impact.lost)
        lost = max(0.0, lost + own * (1 - (1.0 if speed is None else speed.speed)))
        return round(lost / (1 + lost), 6)

    def _distance(self, one: GpuState, other: GpuState) -> float:
        known = self.distances.get((one.gpu.address, other.gpu.address))
        return distance(one, other) if known is None else known

    def _utilised(self, states: Sequence[GpuState]) -> float:
        """How many are above the threshold, and how busy they are together; the first counts twice."""
        if not states:
            return 0.0
        above = sum(state.busy_percent > self.policy.threshold_percent for state in states)
        busy = sum(1 - (1 - state.busy_percent / 100) * _speed(state) for state in states)
        return (2 * above + busy) / (3 * len(states))


def impact_of(model: PerformanceModel, workload: str, share: Share, state: GpuState) -> Impact | Unpredictable:
    """Predict for one share beside everything that is on its GPU."""
    isolation = isolation_of(share, state.gpu)
    if isolation is None:
        return ALONE
    return predict_impact(model, isolation, (workload, share.profile), state.neighbours)


def speed_of(model: PerformanceModel, workload: str, state: GpuState) -> BoardSpeed | Unpredictable | None:
    """The speed of a GPU for a class: as the inventory declares it, else as its board was measured.

    None where nobody declared or measured one, so that GPUs are equal.
    """
    declared = state.constraints.speed
    if declared is not None:
        return BoardSpeed(declared, declared, declared, 0)
    return model.times.speed(workload, board_name(state.gpu))


def board_name(gpu: Gpu) -> str:
    """The board of a GPU as tables of job times have it; of one that the catalogue does not have, what it says."""
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return board.key if board is not None else gpu.name or gpu.device_id


def isolation_of(share: Share, gpu: Gpu) -> str | None:
    """How a share is kept apart from others on its GPU: `mig`, the vGPU scheduler's policy, or None for a whole card.

    A driver that does not tell its scheduler has the default one (telemetry reference 2.3).
    """
    if kind_of(share.sharing).takes is not Takes.VGPU:
        return None
    if catalog.is_mig_backed(share.profile):
        return MIG
    return gpu.scheduler.policy if gpu.scheduler is not None else BEST_EFFORT


def used_part(state: GpuState) -> float:
    """The used part of a GPU, 0 to 1, by framebuffer; by functions where the framebuffer is unknown."""
    if state.whole is not None:
        return 1.0
    memory = memory_of(state)
    framebuffer = sum(held.framebuffer_mib or 0 for held in state.vgpus)
    if memory and framebuffer:
        return min(1.0, framebuffer / memory)
    functions = len(state.gpu.vfs)
    return min(1.0, len(state.functions) / functions) if functions else 0.0


def free_part(state: GpuState) -> float:
    """How much of a GPU is free, 0 to 1, where 1 is the fastest GPU of the fleet, empty."""
    return (1.0 - used_part(state)) * _speed(state)


def free_of_host(states: Collection[GpuState]) -> float:
    """The mean over the host's GPUs, in steps that make equal hosts equal."""
    return round(sum(map(free_part, states)) / max(1, len(states)), 3)


def _speed(state: GpuState) -> float:
    return 1.0 if state.constraints.speed is None else state.constraints.speed


def _free(free: float) -> float:
    return free


def _taken(free: float) -> float:
    return 1.0 - free


_OF_HOST: dict[PolicyName, Callable[[float], float]] = {PolicyName.BINPACK: _free, PolicyName.SPREAD: _taken}


def _broken_up(offer: Offer, state: GpuState) -> float:
    """The cost of a share under `fragmentation` beside other policies: half for an opened GPU, half for the rest."""
    takes = kind_of(offer.share.sharing).takes
    if takes is Takes.CARD:
        return float(offer.waste[0])
    whole = len(state.gpu.vfs) if takes is Takes.FUNCTION else memory_of(state)
    return (offer.waste[1] + min(1.0, max(0, offer.waste[2]) / max(1, whole))) / 2


def _opened(waste: Sequence[int]) -> float:
    """The same for several shares: how many GPUs they open."""
    return min(1.0, waste[1] / 16) if len(waste) > 1 else 0.0


def distance(one: GpuState, other: GpuState) -> float:
    """How far apart two GPUs of one host are, 0 to 1: by what joins them, its links, and the buses between."""
    near = nearness(_placed(one), _placed(other))
    if near is Nearness.SAME:
        return 0.0
    links = direct_links(one.gpu, other.gpu) if near is Nearness.NVLINK else 0
    buses = abs(_bus(one) - _bus(other)) / MOST_BUSES
    return (near.steps + min(0.9, buses + (FEW_LINKS / links if links else 0.0))) / (FARTHEST + 1)


def _placed(state: GpuState) -> GpuPlace:
    return GpuPlace(state.gpu, state.board, nvlink_labels(state.constraints.labels))


def _bus(state: GpuState) -> int:
    domain, bus, _ = state.gpu.address.split(":")
    return int(domain, 16) * 256 + int(bus, 16)
