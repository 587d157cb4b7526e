# SPDX-License-Identifier: Apache-2.0
"""The cards of a fleet under the scheduler's rules, as the search for moves asks them: each state is worked out once.

The cards are those that are read when every VM that may move is gone, with the leases of these VMs on top.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.scheduler.defrag.board import Block, Kind, State
from vgpuctl.scheduler.gpu_by_facts import GpuByFacts, with_share
from vgpuctl.scheduler.gpu_class import GpuClasses, LeasedGpu
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.sharing.mixed_size import starts_left
from vgpuctl.sharing.offer import Refusal, ShareRequest
from vgpuctl.sharing.offers import ask

MOST_SHARES = 64
"""Wanted shares counted on one card."""


class FleetCards:
    """The rules for a MoveBoard: kinds are share requests, states numbers. wanted: None counts cards nobody uses."""

    def __init__(self, wanted: ShareRequest | None) -> None:
        self._wanted = wanted
        self._classes = GpuClasses()
        self._numbers: dict[object, int] = {}
        self._cards: list[LeasedGpu] = []
        self._fits: dict[tuple[State, Kind], list[tuple[State, Block]]] = {}
        self._without: dict[tuple[State, Block], State] = {}
        self._rooms: dict[State, int] = {}
        self._made = 0

    def state_of(self, reading: GpuByFacts, leases: Iterable[Lease]) -> State:
        """The state of a card with these leases."""
        card = LeasedGpu(reading, self._classes)
        for lease in leases:
            card.take(lease)
        return self._number(card)

    def block_of(self, share: Share) -> Block:
        """A share as the states know it: equal ones are exchangeable."""
        return (str(share.sharing), share.profile, share.framebuffer_mib or 0, share.placement_start or 0)

    def fits(self, state: State, kind: Kind) -> Sequence[tuple[State, Block]]:
        """The states with one more share of a kind, and that share; the one that the scheduler chooses is first."""
        key = (state, kind)
        if key not in self._fits:
            card = self._card(state)
            assert isinstance(kind, ShareRequest)
            self._fits[key] = [
                (self._number(self._with(card, share)), self.block_of(share)) for share in _offered(kind, card.example)
            ]
        return self._fits[key]

    def without(self, state: State, block: Block) -> State:
        """The state after a share was released."""
        key = (state, block)
        if key not in self._without:
            card = self._copy(self._card(state))
            card.release(next(one for one in card.leases.values() if self.block_of(one.share) == block))
            self._without[key] = self._number(card)
        return self._without[key]

    def room(self, state: State) -> int:
        """How many wanted shares the card takes, or 1 for a card that nobody uses."""
        if state not in self._rooms:
            card = self._card(state)
            if self._wanted is None:
                self._rooms[state] = int(card.stock.is_untouched)
            else:
                self._rooms[state] = _count(self._wanted, card.example)
        return self._rooms[state]

    def _card(self, state: State) -> LeasedGpu:
        assert isinstance(state, int)
        return self._cards[state]

    def _number(self, card: LeasedGpu) -> int:
        blocks = tuple(sorted(map(repr, (self.block_of(one.share) for one in card.leases.values()))))
        number = self._numbers.setdefault((card.number, blocks), len(self._cards))
        if number == len(self._cards):
            self._cards.append(card)
        return number

    def _copy(self, card: LeasedGpu) -> LeasedGpu:
        found = LeasedGpu(card.reading, self._classes)
        for lease in card.leases.values():
            found.take(lease)
        return found

    def _with(self, card: LeasedGpu, share: Share) -> LeasedGpu:
        """A card with one more lease, on a function of its own."""
        found = self._copy(card)
        self._made += 1
        identity = f"move-{self._made}"
        same = kind_of(share.sharing).same_on(share, card.reading.gpu, card.functions) or share
        named = kind_of(share.sharing).named(replace(same, placement_start=share.placement_start), identity)
        found.take(Lease(identity, identity, "", identity, card.reading.host, 0, named, LeaseState.RESERVED))
        return found


def _offered(kind: ShareRequest, state: GpuState) -> list[Share]:
    """The shares of a request that a card gives, the scheduler's choice first; in mixed-size mode at every place."""
    answer = ask(kind, state)
    if isinstance(answer, Refusal):
        return []
    shares = []
    for offer in answer:
        offered = next((one for one in state.gpu.types if one.type_id == offer.share.type_id), None)
        starts = None if offered is None else starts_left(offered, state)
        if offer.share.placement_start is None or starts is None:
            shares.append(offer.share)
        else:
            shares.extend(replace(offer.share, placement_start=start) for start in starts)
    return shares


def _count(wanted: ShareRequest, state: GpuState) -> int:
    for count in range(MOST_SHARES):
        answer = ask(wanted, state)
        if isinstance(answer, Refusal):
            return count
        state = with_share(state, answer[0].share)
    return MOST_SHARES
