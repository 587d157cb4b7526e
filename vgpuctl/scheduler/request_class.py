# SPDX-License-Identifier: Apache-2.0
"""Equal requests under one policy, with the offers that are known: each class of GPUs is computed once."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from vgpuctl import catalog
from vgpuctl.catalog.vgpu_terms import terms_of
from vgpuctl.model.constraints import Label
from vgpuctl.model.host_parts import NO_PARTS, HostPart, parts_needed
from vgpuctl.model.lease import Share
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.cell_choice import CellReach, Cells, choose_cells, may_take
from vgpuctl.scheduler.fit import by_conditions, fit, given_for_conditions
from vgpuctl.scheduler.gpu_by_facts import with_share
from vgpuctl.scheduler.gpu_class import LeasedGpu
from vgpuctl.scheduler.guest_place import need_of
from vgpuctl.scheduler.host_cells import CellRoom
from vgpuctl.scheduler.partitions import sizes_of
from vgpuctl.scheduler.scorer import Price, Scorer
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.sharing.offer import Offer, Refusal, ShareRequest
from vgpuctl.sharing.offers import ask


class IndexKey(NamedTuple):
    """The index that answers: of GPUs or hosts, with or without loads and the GPUs' distances in a state.

    page_kib: of which huge pages the room is, None for ordinary memory. has_gpus: whether VMs with GPUs ask, which are
    pinned where the host pins. reach: whether only a GPU's own NUMA node is part of its state, or all of the host.
    with_untouched: whether the number of untouched GPUs of its host is part of the state of an untouched GPU.
    parts: those of the host that VMs need.
    """

    of_hosts: bool
    with_loads: bool
    with_places: bool
    page_kib: int | None = None
    has_gpus: bool = True
    reach: CellReach = CellReach.NEAR
    with_untouched: bool = False
    parts: frozenset[HostPart] = NO_PARTS


def share_requests_of(request: VmRequest) -> list[ShareRequest]:
    """One ShareRequest per share, in the request's order."""
    share_requests: list[ShareRequest] = []
    sizes = sizes_of([gpu for gpu in request.gpus for _ in range(gpu.count)])
    vgpus = tuple(gpu.profile for gpu in request.gpus if gpu.sharing is None for _ in range(gpu.count))
    for gpu in request.gpus:
        boards = None
        if gpu.board is not None:
            boards = frozenset(board.key for board in catalog.boards_named(gpu.board))
        share_request = ShareRequest(
            gpu,
            boards,
            request.constraints.required,
            terms=terms_of(request),
            together=sizes.together,
            partition=request.constraints.partition,
            vgpus=vgpus,
        )
        share_requests.extend([share_request] * gpu.count)
    if share_requests and request.display.shows_vgpu:
        # The console shows the first vGPU (guests/domain/display_view.py), so only that one has to be on such a host.
        shown = next((at for at, one in enumerate(share_requests) if one.request.sharing is None), 0)
        share_requests[shown] = replace(share_requests[shown], display=request.display.vgpu)
    return share_requests


class Fitting(NamedTuple):
    """All shares of a VM on one host, what they cost, and the VM's part of the NUMA nodes."""

    price: Price
    shares: tuple[Share, ...]
    cells: Cells


class RequestClass:
    """number: unique in its fleet, never given twice. Offers are kept by the class of a GPU (gpu_class)."""

    def __init__(self, number: int, request: VmRequest, scorer: Scorer) -> None:
        self.number = number
        self.scorer = scorer
        self.need = need_of(request)
        self.page_kib = request.hugepages_kib
        self.parts = parts_needed(request)
        self.share_requests = share_requests_of(request)
        self._required = request.constraints.required
        self.takes_turns = scorer.takes_turns()
        several = len(self.share_requests) != 1
        self.has_gpus = bool(self.share_requests)
        with_places = several and scorer.wants_closeness()
        self.index = IndexKey(
            of_hosts=several,
            with_loads=scorer.wants_loads(),
            with_places=with_places,
            page_kib=request.hugepages_kib,
            has_gpus=self.has_gpus,
            parts=self.parts,
            with_untouched=scorer.is_least_waste and not several,
        )
        self.indexes = tuple(self.index._replace(reach=reach) for reach in CellReach)
        self.compares_models = scorer.is_least_waste and any(map(_may_be_any_model, self.share_requests))
        self._different = list(Counter(self.share_requests).items())
        self._best: dict[int, Offer | None] = {}
        self._prices: dict[tuple[int, float], Price | None] = {}
        self._counts: list[dict[int, int]] = [{} for _ in self._different]

    def could_use(self, number: int, state: GpuState) -> bool:
        """True if a GPU of this class, in this state, gives the one share that is asked for."""
        return self._offer_on(number, state) is not None

    def price_on(self, number: int, state: GpuState, free: float) -> Price | None:
        """The cost of a single share on a GPU of this class; None when it takes none. free: of the host's GPUs."""
        key = (number, free)
        if key not in self._prices:
            offer = self._offer_on(number, state)
            price = None
            if offer is not None:
                price = self.scorer.price_of(offer, state, free, by_size=by_conditions(self.share_requests[0]))
            self._prices[key] = price
        return self._prices[key]

    def share_on(self, card: LeasedGpu) -> Share:
        """The share that a GPU gives whose class has a price."""
        offer = self._offer_on(card.number, card.example)
        assert offer is not None
        share = kind_of(offer.share.sharing).same_on(offer.share, card.reading.gpu, card.functions)
        if share is not None:
            return share
        answer = ask(self.share_requests[0], card.state)
        assert not isinstance(answer, Refusal)
        return answer[0].share

    def may_fit(self, cards: Sequence[tuple[int, GpuState]]) -> bool:
        """True if the GPUs of a host take each share request alone, as often as it is asked. cards: class and state."""
        for (share_request, times), counts in zip(self._different, self._counts, strict=True):
            left = times
            for number, state in cards:
                if number not in counts:
                    counts[number] = _most(share_request, state, times)
                left -= counts[number]
                if left <= 0:
                    break
            if left > 0:
                return False
        return True

    def fit_on(
        self, states: Sequence[GpuState], labels: frozenset[Label], rooms: Sequence[CellRoom], reach: CellReach
    ) -> Fitting | None:
        """All shares on one host with the VM's part of its NUMA nodes; None when they do not go together.

        labels: the host's. rooms: of its cells. Where the GPUs that are best are at cells that do not take the VM, the
        GPUs of each cell alone are looked at.
        """
        if not self.share_requests:
            cells = choose_cells(self.need, (), rooms, reach)
            if cells is None or not labels.issuperset(self._required):
                return None
            price = self.scorer.price_of_all((), (len(states),), _by_address(states), size_mib=0)
            return Fitting((price[0], self.scorer.missing(labels), *price[2:]), (), cells)
        if not may_take(self.need, rooms):
            return None
        at_one_node = ([state for state in states if state.gpu.numa_node == room.number] for room in rooms)
        for some in (states, *(at_one_node if len(rooms) > 1 else ())):
            found = fit(self.share_requests, some, self.scorer)
            if found is None:
                continue
            cells = choose_cells(self.need, numa_nodes_of(found.shares), rooms, reach)
            if cells is not None:
                size_mib = given_for_conditions(self.share_requests, found)
                price = self.scorer.price_of_all(found.shares, found.waste, _by_address(states), size_mib=size_mib)
                return Fitting(price, found.shares, cells)
        return None

    def _offer_on(self, number: int, state: GpuState) -> Offer | None:
        if number not in self._best:
            answer = ask(self.share_requests[0], state)
            offer = None
            if not isinstance(answer, Refusal):
                by_size = by_conditions(self.share_requests[0])
                offer = self.scorer.in_order(answer, {state.gpu.address: state}, by_size=by_size)[0]
            self._best[number] = offer
        return self._best[number]


def numa_nodes_of(shares: Iterable[Share]) -> list[int]:
    """The NUMA nodes of a VM's GPUs, as far as they are known."""
    return [one.numa_node for one in shares if one.numa_node is not None]


def _may_be_any_model(share_request: ShareRequest) -> bool:
    return share_request.request.profile is None and share_request.boards is None


def _by_address(states: Iterable[GpuState]) -> dict[str, GpuState]:
    return {state.gpu.address: state for state in states}


def _most(share_request: ShareRequest, state: GpuState, times: int) -> int:
    """How many of one share request a GPU takes when nothing else is asked of it, counted up to `times`.

    For a want that names conditions this is `times` as soon as it takes one: which types go together is not counted.
    """
    for count in range(times):
        answer = ask(share_request, state)
        if isinstance(answer, Refusal):
            return count
        if by_conditions(share_request):
            return times
        state = with_share(state, answer[0].share)
    return times
