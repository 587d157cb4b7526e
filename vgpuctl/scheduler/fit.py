# SPDX-License-Identifier: Apache-2.0
"""All shares of one VM on one host: backtracking search, best GPU first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.model.lease import Share
from vgpuctl.scheduler.gpu_by_facts import with_share
from vgpuctl.scheduler.partitions import choices, has_partitions, is_one_partition
from vgpuctl.scheduler.scorer import Scorer
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.sharing.offer import Offer, Refusal, ShareRequest
from vgpuctl.sharing.offers import ask

Waste = tuple[int, int, int]

USUAL_SCORER = Scorer()

MOST_TRIES = 2000
"""Choices looked at for one VM on one host, a guard against requests made to be hard."""


@dataclass(frozen=True)
class Fit:
    """Shares in the request's order, and their waste added up."""

    shares: tuple[Share, ...]
    waste: Waste


def fit(
    share_requests: Sequence[ShareRequest], states: Sequence[GpuState], scorer: Scorer = USUAL_SCORER
) -> Fit | None:
    """The shares for every want on these GPUs of one host, None when they do not go together.

    Whole cards are chosen first and conditions last, since those have the most ways to be met. Under `topology` the
    search starts from each GPU, and the choice whose GPUs are nearest each other is taken. On an NVSwitch fabric they
    are exactly one partition.
    """
    if not has_partitions(states):
        return _fit(share_requests, states, scorer)
    for some in choices(share_requests, states):
        found = _fit(share_requests, some, scorer)
        if found is not None and is_one_partition(found.shares, some):
            return found
    return None


def _fit(share_requests: Sequence[ShareRequest], states: Sequence[GpuState], scorer: Scorer) -> Fit | None:
    by_address = {state.gpu.address: state for state in states}
    if scorer.wants_closeness() and len(share_requests) > 1:
        scorer = scorer.with_distances(states)
        starts = [_search(share_requests, by_address, scorer, start) for start in by_address]
        found = [one for one in starts if one is not None]
        if found:
            return min(
                found,
                key=lambda one: (
                    given_for_conditions(share_requests, one),
                    scorer.apart(one.shares, by_address),
                    one.waste,
                ),
            )
    fitting = _search(share_requests, by_address, scorer)
    if fitting is None and scorer != USUAL_SCORER:
        return _search(share_requests, by_address, USUAL_SCORER)
    return fitting


def given_for_conditions(share_requests: Sequence[ShareRequest], fitting: Fit) -> int:
    """The shares for requests with conditions, the smallest first."""
    pairs = zip(share_requests, fitting.shares, strict=True)
    return sum(one.framebuffer_mib or 0 for share_request, one in pairs if by_conditions(share_request))


def by_conditions(share_request: ShareRequest) -> bool:
    """True if the want names conditions and no type."""
    return share_request.request.profile is None and share_request.request.sharing is None


def _search(
    share_requests: Sequence[ShareRequest], states: Mapping[str, GpuState], scorer: Scorer, start: str | None = None
) -> Fit | None:
    order = sorted(range(len(share_requests)), key=lambda index: (_ways(share_requests[index]), index))
    search = _ShareSearch([share_requests[index] for index in order], scorer, start)
    chosen = search.choose(0, states)
    if chosen is None:
        return None
    by_index = dict(zip(order, chosen, strict=True))
    offers = [by_index[index] for index in range(len(share_requests))]
    return Fit(tuple(offer.share for offer in offers), _add([offer.waste for offer in offers]))


@dataclass
class _ShareSearch:
    """Depth first, the best first. start: the GPU of the first want, None for any.

    dead_ends: (want, what was given) that is known to lead nowhere.
    """

    share_requests: Sequence[ShareRequest]
    scorer: Scorer
    start: str | None
    dead_ends: set[tuple[int, frozenset[tuple[str, str, int]]]] = field(default_factory=set)
    tries: int = 0

    def choose(self, index: int, states: Mapping[str, GpuState]) -> list[Offer] | None:
        if index == len(self.share_requests):
            return []
        given = _given(states)
        if (index, given) in self.dead_ends:
            return None
        for offer in self._offers(index, states):
            self.tries += 1
            if self.tries > MOST_TRIES:
                return None
            rest = {**states, offer.share.gpu: with_share(states[offer.share.gpu], offer.share)}
            chosen = self.choose(index + 1, rest)
            if chosen is not None:
                return [offer, *chosen]
        self.dead_ends.add((index, given))
        return None

    def _offers(self, index: int, states: Mapping[str, GpuState]) -> list[Offer]:
        found: list[Offer] = []
        for state in states.values():
            if index == 0 and self.start not in (None, state.gpu.address):
                continue
            answer = ask(self.share_requests[index], state)
            if not isinstance(answer, Refusal):
                found.extend(answer)
        return self.scorer.in_order(found, states, by_size=by_conditions(self.share_requests[index]))


def _given(states: Mapping[str, GpuState]) -> frozenset[tuple[str, str, int]]:
    """The shares given in this search, whatever their VF: two ways to the same state are one state."""
    return frozenset(
        (address, profile, state.given.count(profile))
        for address, state in states.items()
        for profile in set(state.given)
    )


def _ways(share_request: ShareRequest) -> int:
    """Whole cards come first and conditions last."""
    if share_request.request.sharing is not None:
        return 0 if kind_of(share_request.request.sharing).takes is Takes.CARD else 1
    return 2 if share_request.request.profile is not None else 3


def _add(wastes: Sequence[Waste]) -> Waste:
    return (sum(one[0] for one in wastes), sum(one[1] for one in wastes), sum(one[2] for one in wastes))
