# SPDX-License-Identifier: Apache-2.0
"""Which of several allowed placements is the best under a policy. It orders; what is allowed is decided elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from vgpuctl.model.lease import Slice
from vgpuctl.model.policy import DEFAULT_POLICY, Policy, PolicyName
from vgpuctl.scheduler.gpu_state import GpuState
from vgpuctl.scheduler.kinds.common import memory_of, numa_node
from vgpuctl.scheduler.offer import Offer

Key = tuple[float | str, ...]

NVSWITCH = "nvswitch"


@dataclass(frozen=True)
class FleetView:
    """What policies know beside facts and leases.

    last_host: where the VM before was placed, for `round-robin`. utilisation_percent: as measured, by host name and
    GPU address, for `least-utilised`; a GPU that is not there counts as idle.
    """

    last_host: str | None = None
    utilisation_percent: Mapping[tuple[str, str], float] = field(default_factory=dict)


NOTHING_MORE = FleetView()


@dataclass(frozen=True)
class Candidate:
    """A host that can take all of the VM. size_mib: what it gives for wants that name conditions and no type."""

    host: str
    slices: tuple[Slice, ...]
    waste: tuple[int, ...]
    states: tuple[GpuState, ...]
    size_mib: int = 0


@dataclass(frozen=True)
class Judge:
    """A policy with what it needs to know."""

    policy: Policy = DEFAULT_POLICY
    view: FleetView = NOTHING_MORE

    def in_order(
        self, offers: Sequence[Offer], states: Mapping[str, GpuState], *, by_size: bool = False
    ) -> list[Offer]:
        """Offers of one host for one want, the best first; equal ones by waste, GPU address and type name.

        by_size: the want names conditions, so the smallest type comes first whatever the policy is.
        """
        scores = [0.0] * len(offers)
        if not self._is_least_waste() and len(offers) > 1:
            scores = self._scores([self._offer_keys(offer, states) for offer in offers])
        order = sorted(
            range(len(offers)),
            key=lambda at: (
                offers[at].waste[0] if by_size else 0,
                scores[at],
                offers[at].waste,
                offers[at].slice.gpu,
                offers[at].slice.profile,
            ),
        )
        return [offers[at] for at in order]

    def best(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """The best host; of equal ones the first by name."""
        scores = [0.0] * len(candidates)
        if not self._is_least_waste() and len(candidates) > 1:
            scores = self._scores([self._host_keys(candidate) for candidate in candidates])
        order = sorted(
            range(len(candidates)),
            key=lambda at: (candidates[at].size_mib, scores[at], candidates[at].waste, candidates[at].host),
        )
        return candidates[order[0]] if order else None

    def apart(self, slices: Sequence[Slice], states: Mapping[str, GpuState]) -> Key:
        """How far apart the GPUs of one VM are: each pair's distance, added up."""
        chosen = [states[one.gpu] for one in slices]
        pairs = [_distance(one, other) for one, other in combinations(chosen, 2)]
        return (float(sum(step for step, _ in pairs)), float(sum(buses for _, buses in pairs)))

    def wants_closeness(self) -> bool:
        """Whether several GPUs of one VM should be near each other."""
        return PolicyName.TOPOLOGY in self.policy.names

    def _is_least_waste(self) -> bool:
        """Whether the order by waste, which follows the scores, is the whole policy."""
        return self.policy.names == (PolicyName.FRAGMENTATION,)

    def _scores(self, keys: Sequence[Mapping[PolicyName, Key]]) -> list[float]:
        """Each one's weighted place among all: 0 for the best, 1 for the worst under every name."""
        scores = [0.0] * len(keys)
        for name, weight in self.policy.parts:
            different = sorted({one[name] for one in keys})
            place = {key: at / max(1, len(different) - 1) for at, key in enumerate(different)}
            scores = [score + weight * place[one[name]] for score, one in zip(scores, keys, strict=True)]
        return [round(score, 9) for score in scores]

    def _offer_keys(self, offer: Offer, states: Mapping[str, GpuState]) -> dict[PolicyName, Key]:
        state = states[offer.slice.gpu]
        return {name: self._offer_key(name, offer, state, states) for name in self.policy.names}

    def _offer_key(self, name: PolicyName, offer: Offer, state: GpuState, states: Mapping[str, GpuState]) -> Key:
        if name is PolicyName.FRAGMENTATION:
            return offer.waste
        if name is PolicyName.BINPACK:
            return (-used_part(state),)
        if name is PolicyName.SPREAD:
            return (used_part(state),)
        if name is PolicyName.LEAST_UTILISED:
            return self._utilised([state])
        if name is PolicyName.TOPOLOGY:
            given = [other for other in states.values() if other.given]
            steps = [_distance(state, other) for other in given]
            return (float(sum(step for step, _ in steps)), float(sum(buses for _, buses in steps)))
        return ()

    def _host_keys(self, candidate: Candidate) -> dict[PolicyName, Key]:
        return {name: self._host_key(name, candidate) for name in self.policy.names}

    def _host_key(self, name: PolicyName, candidate: Candidate) -> Key:
        if name is PolicyName.FRAGMENTATION:
            return candidate.waste
        if name is PolicyName.BINPACK:
            return (-_used_of_host(candidate),)
        if name is PolicyName.SPREAD:
            return (_used_of_host(candidate),)
        if name is PolicyName.ROUND_ROBIN:
            return (self.view.last_host is not None and candidate.host <= self.view.last_host, candidate.host)
        states = {state.gpu.address: state for state in candidate.states}
        if name is PolicyName.LEAST_UTILISED:
            chosen = {one.gpu for one in candidate.slices} or set(states)
            return self._utilised([states[address] for address in sorted(chosen)])
        return self.apart(candidate.slices, states)

    def _utilised(self, states: Sequence[GpuState]) -> Key:
        """How many are above the threshold, then how busy they are together."""
        busy = [self.view.utilisation_percent.get((state.host, state.gpu.address), 0.0) for state in states]
        return (float(sum(one > self.policy.threshold_percent for one in busy)), sum(busy))


def used_part(state: GpuState) -> float:
    """How much of a GPU is taken, 0 to 1, by framebuffer or, where that is not known, by functions."""
    if state.whole is not None:
        return 1.0
    memory = memory_of(state)
    framebuffer = sum(held.framebuffer_mib or 0 for held in state.vgpus)
    if memory and framebuffer:
        return min(1.0, framebuffer / memory)
    functions = len(state.gpu.vfs)
    return min(1.0, len(state.functions) / functions) if functions else 0.0


def _used_of_host(candidate: Candidate) -> float:
    """The used part of the host's GPUs together."""
    return sum(used_part(state) for state in candidate.states) / max(1, len(candidate.states))


def _distance(one: GpuState, other: GpuState) -> tuple[int, int]:
    """0 the same card, 1 over NVSwitch, 2 in one NUMA node, 3 across; then how many buses lie between."""
    if one.gpu.address == other.gpu.address:
        return (0, 0)
    buses = abs(_bus(one) - _bus(other))
    if _has_nvswitch(one) and _has_nvswitch(other):
        return (1, buses)
    node = numa_node(one)
    return (2 if node is not None and node == numa_node(other) else 3, buses)


def _has_nvswitch(state: GpuState) -> bool:
    return state.board is not None and state.board.nvlink is not None and state.board.nvlink.topology == NVSWITCH


def _bus(state: GpuState) -> int:
    domain, bus, _ = state.gpu.address.split(":")
    return int(domain, 16) * 256 + int(bus, 16)
