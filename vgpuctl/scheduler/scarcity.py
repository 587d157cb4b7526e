# SPDX-License-Identifier: Apache-2.0
"""How scarce the GPUs of each model are, which decides where a request goes that several models could serve.

The price of a MiB rises exponentially as the model's free part falls, as in online packing and routing (Awerbuch, Azar,
Plotkin 1993), and faster still when little is left, so that no model runs out while others have room: models are used
up together, and a request that wastes a part of a larger card goes there only when the smaller ones are that much
scarcer. Nothing of the future is known; equal fleets give equal prices.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from vgpuctl.catalog.names import gpu_instance_slices
from vgpuctl.model.lease import Share
from vgpuctl.scheduler.gpu_by_facts import with_share
from vgpuctl.sharing.gpu_state import GpuState, framebuffer_of, max_instances_of
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of, without_cards
from vgpuctl.sharing.offer import Offer
from vgpuctl.sharing.refusals import memory_of, refuse_unusable

STEEPNESS = 4.0
"""The price grows by the factor e for each quarter of a model's memory that is taken."""

LAST = 0.1
"""Free part near which the price begins to rise faster, as the inverse root of what is free and this."""

SMALL_FLEET = 100
"""GPUs of a fleet in which the price rises half as steeply, since there one VM changes the free part much.

In larger ones the loss of opening a card counts that much less between models: other VMs soon fill the card.
"""

OPENED = 0.2
"""Part of the memory left on a card that counts as lost when a first vGPU decides which size all others there have."""

BESIDE = 0.02
"""Part of an untouched GPU that counts as lost for each other untouched GPU of its host when it is opened, so that
hosts stay whole for VMs with several GPUs."""

Model = Hashable
"""What makes GPUs interchangeable for a request without a model: the board, its memory, and how it can be shared."""


class Stock(NamedTuple):
    """Memory in MiB of one GPU, or of all of a model: what more vGPUs could still have, and all of it."""

    free_mib: int = 0
    total_mib: int = 0

    @property
    def is_untouched(self) -> bool:
        """True if nothing of it is taken."""
        return 0 < self.total_mib == self.free_mib


NOTHING = Stock()
"""The stock of a GPU that is not there."""


class Loss(NamedTuple):
    """Memory in MiB, or parts of a GPU, that other requests lose.

    taken: what is given. opening: what counts as lost because a GPU is opened that nobody used.
    """

    taken: float
    opening: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.taken + self.opening


class Scarcity:
    """The stocks of all models of a fleet, counted in whole MiB so that their history leaves no trace."""

    def __init__(self) -> None:
        self._free_mib: Counter[Model] = Counter()
        self._total_mib: Counter[Model] = Counter()
        self._gpus = 0

    def count(self, model: Model, now: Stock, before: Stock = NOTHING) -> None:
        """Count a GPU that comes, goes (now: NOTHING) or changes."""
        self._free_mib[model] += now.free_mib - before.free_mib
        if now.total_mib != before.total_mib:
            self._total_mib[model] += now.total_mib - before.total_mib
            self._gpus += (now.total_mib > 0) - (before.total_mib > 0)

    def price(self, model: Model) -> float:
        """The price of a MiB of a model: 1 when all is taken, less the more is free."""
        total_mib = self._total_mib[model]
        if not total_mib:
            return 1.0
        free = self._free_mib[model] / total_mib
        rise = STEEPNESS * free + math.log1p(free / LAST) / 2
        return math.exp(-rise * self._gpus / (self._gpus + SMALL_FLEET))

    def price_of_any(self, models: Iterable[Model]) -> float:
        """The price on a host with GPUs of these models: that of the scarcest."""
        return max(map(self.price, models), default=1.0)

    def weighed(self, loss: float, opening: float, models: Iterable[Model]) -> float:
        """A loss as it compares with that of other models. opening: the part of it that comes from opening a GPU."""
        counted = min(1.0, SMALL_FLEET / max(1, self._gpus))
        return self.price_of_any(models) * (loss - (1 - counted) * opening)


class HostStock:
    """The free memory of each GPU of one host, by address. One that takes no VM has nothing."""

    def __init__(self) -> None:
        self._stocks: dict[str, Stock] = {}
        self._models: dict[str, Model] = {}
        self._untouched: set[str] = set()

    def count(self, scarcity: Scarcity, gpus: Iterable[tuple[str, Model, Stock]]) -> bool:
        """Count what is free of these GPUs now. Returns whether the host has another number of untouched ones."""
        before = len(self._untouched)
        for address, model, stock in gpus:
            then = self._stocks.get(address, NOTHING)
            if then == stock:
                continue
            scarcity.count(model, stock, then)
            if stock.is_untouched:
                self._untouched.add(address)
            else:
                self._untouched.discard(address)
            self._stocks[address] = stock
            self._models[address] = model
        return len(self._untouched) != before

    def leave(self, scarcity: Scarcity) -> None:
        """Take the host's GPUs out of the count."""
        for address, stock in self._stocks.items():
            scarcity.count(self._models[address], NOTHING, stock)

    def untouched(self) -> frozenset[str]:
        """The addresses of the GPUs that nobody uses any part of."""
        return frozenset(self._untouched)

    def beside(self, address: str) -> int:
        """How many other GPUs are untouched, when this one is; else 0."""
        return len(self._untouched) - 1 if address in self._untouched else 0


def model_of(state: GpuState) -> Model:
    """The model of a GPU. Whole cards are left out of it, since that offer comes and goes with the use of the GPU."""
    gpu = state.gpu
    board = state.board.key if state.board else (gpu.vendor_id, gpu.device_id)
    return (board, memory_of(state), without_cards(gpu.sharing))


def stock_of(state: GpuState) -> Stock:
    """The free memory of a GPU. Beside vGPUs of one size only as many of that size count as it takes."""
    total_mib = memory_of(state)
    if state.whole is not None:
        return Stock(0, total_mib)
    if refuse_unusable(state) is not None:
        return Stock()
    sizes = Counter(held.framebuffer_mib or 0 for held in state.vgpus)
    used_mib = sum(_share_mib(size_mib, state) * count for size_mib, count in sizes.items())
    if not sizes and state.functions and state.gpu.vfs:
        used_mib = total_mib * len(state.functions) // len(state.gpu.vfs)
    return Stock(max(0, total_mib - used_mib), total_mib)


def is_untouched(state: GpuState) -> bool:
    """As of its stock, without counting what is taken."""
    is_free = state.whole is None and not state.vgpus and not state.functions
    return is_free and refuse_unusable(state) is None and memory_of(state) > 0


def loss_of(offer: Offer, state: GpuState, beside: int) -> Loss:
    """The memory of the GPU that other requests lose when this offer is taken.

    beside: the other untouched GPUs of the host, when this one is.
    """
    host = BESIDE * beside * memory_of(state)
    takes = kind_of(offer.share.sharing).takes
    if takes is Takes.CARD:
        return Loss(memory_of(state), host)
    size, opens, left = offer.waste
    if takes is Takes.FUNCTION:
        return Loss(size, OPENED * opens + host)
    if gpu_instance_slices(offer.share.profile) is None:
        size = _share_mib(size, state)
    return Loss(size, OPENED * opens * max(0, left) + host)


def loss_of_all(shares: Sequence[Share], states: Mapping[str, GpuState]) -> tuple[Loss, int]:
    """The same for all shares of one VM on a host, and how many other GPUs are untouched if they open any.

    states: all GPUs of the host by address, as they were before.
    """
    taken_mib, opening, opened_mib, opened = 0, 0.0, 0, 0
    for address, after in _after(shares, states).items():
        before, left = stock_of(states[address]), stock_of(after)
        taken_mib += before.free_mib - left.free_mib
        if before.is_untouched:
            opening += OPENED * left.free_mib
            opened_mib += before.total_mib
            opened += 1
    beside = sum(map(is_untouched, states.values())) - opened if opened else 0
    return Loss(taken_mib, opening + BESIDE * beside * opened_mib), beside


def _after(shares: Sequence[Share], states: Mapping[str, GpuState]) -> dict[str, GpuState]:
    """The GPUs that these shares use, with them."""
    used: dict[str, GpuState] = {}
    for one in shares:
        used[one.gpu] = with_share(used.get(one.gpu, states[one.gpu]), one)
    return used


def _share_mib(size_mib: int, state: GpuState) -> int:
    """The part of an equal-size GPU that one vGPU of a size keeps from others: its memory over the most it takes."""
    for offered in state.gpu.types:
        if gpu_instance_slices(offered.name) is None and framebuffer_of(offered, state.board) == size_mib:
            most = max_instances_of(offered, state.board)
            return memory_of(state) // most if most and not state.gpu.heterogeneous else size_mib
    return size_mib
