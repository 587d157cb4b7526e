# SPDX-License-Identifier: Apache-2.0
"""CPUs, memory and huge pages of each NUMA node of a host, and how much of them is promised to VMs.

Memory is not overcommitted, since VFIO pins all of a guest's memory. vCPUs are promised by the host's CPU ratio. A host
with a single cell is one pool. Cells without CPUs hold a GPU's own memory (Grace Hopper, POWER9) or CXL memory: none of
it is promised to guests.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.memory import HugepageFacts, NumaNode
from vgpuctl.model.host_constraints import CpuRatio
from vgpuctl.model.numa import NumaCell
from vgpuctl.model.placement import CellPromise, HostCapacity

ORDINARY = 0
"""Stands for memory that is not made of huge pages, where memory is told apart by page size in KiB."""

LARGEST_RESERVE_MIB = 2048

NOTHING = (0, 0)
"""The bounds of a page size that a cell does not have."""


_Key = TypeVar("_Key", int, tuple[int, ...])


class CellRoom(NamedTuple):
    """The part of a cell for one more VM: vCPUs, and memory of one page size. gpus: how many sit at the cell."""

    number: int
    vcpus: int
    memory_mib: int
    gpus: int = 0


def host_reserve_mib(memory_mib: int) -> int:
    """Memory that is never promised to VMs: a sixteenth of the host's, at most 2 GiB."""
    return min(memory_mib // 16, LARGEST_RESERVE_MIB)


def guest_cells(facts: HostFacts) -> tuple[NumaNode, ...]:
    """The cells that have both CPUs and memory, by number."""
    return tuple(sorted((one for one in facts.numa_nodes if one.cpus and one.memory_mib), key=lambda one: one.number))


def is_pool(facts: HostFacts) -> bool:
    """True if the host has no two cells to choose from."""
    return len(guest_cells(facts)) < 2


def device_memory_cells(facts: HostFacts) -> tuple[NumaNode, ...]:
    """The cells that have memory and no CPUs."""
    return tuple(one for one in facts.numa_nodes if one.memory_mib and not one.cpus)


def host_memory_mib(facts: HostFacts) -> int:
    """The host's memory without that of cells that have no CPUs; the kernel's MemTotal counts those too."""
    return max(0, facts.memory_mib - sum(one.memory_mib for one in device_memory_cells(facts)))


def available_mib(facts: HostFacts) -> int:
    """Memory of the host that was free when it was read, without that of cells that have no CPUs."""
    elsewhere = sum(one.memory_available_mib or 0 for one in device_memory_cells(facts))
    return max(0, facts.memory_available_mib - elsewhere)


def unmounted_sizes(facts: HostFacts) -> frozenset[int]:
    """The sizes in KiB of huge pages that the host keeps and that libvirt gives no guest: no hugetlbfs is mounted."""
    return frozenset(one.size_kib for one in facts.hugepages or () if one.total and one.is_mounted is False)


def host_pools(facts: HostFacts) -> tuple[HugepageFacts, ...]:
    """The host's pools of huge pages, without the pages on cells that have no CPUs."""
    elsewhere = [pool for cell in device_memory_cells(facts) for pool in cell.hugepages]
    pools = []
    for pool in facts.hugepages or ():
        there = [one for one in elsewhere if one.size_kib == pool.size_kib]
        total = pool.total - sum(one.total for one in there)
        free = pool.free - sum(one.free for one in there)
        pools.append(HugepageFacts(pool.size_kib, max(0, total), max(0, free)))
    return tuple(pools)


def cpu_numbers(cpus: str) -> tuple[int, ...]:
    """The CPUs of a kernel CPU list such as `0-15,32-47`."""
    numbers: list[int] = []
    for part in cpus.split(","):
        first, _, last = part.strip().partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


class CellBooks:
    """The amounts and promises of one cell, or of a whole host with one cell."""

    def __init__(
        self,
        number: int,
        cpu_count: int,
        bounds_mib: dict[int, tuple[int, int]],
        ratio: CpuRatio,
        *,
        cores: Sequence[tuple[int, ...]] = (),
        gpus: int = 0,
    ) -> None:
        """bounds_mib: by page size, the most that all VMs can have, and what was free when the host was read.

        cores: the CPUs of each, empty for a pool, on which no vCPU is pinned. Where a CPU has one VM, so has its core:
        what one thread does can be told on its siblings.
        """
        self.number = number
        self.cpu_count = cpu_count
        self.cpus = frozenset(cpu for core in cores for cpu in core)
        if ratio.pinned != 1:
            cores = [(cpu,) for core in cores for cpu in core]
        self._cores = sorted(cores, key=lambda core: (-len(core), core))
        self._core_of = {cpu: core for core in self._cores for cpu in core}
        self._pins_on: Counter[tuple[int, ...]] = Counter()
        self._floating = cpu_count
        self.gpus = gpus
        self.ratio = ratio
        self.shared_vcpus = 0
        self.pins: Counter[int] = Counter()
        self.promised_mib: Counter[int] = Counter()
        self.bounds_mib = bounds_mib

    @property
    def pins_guests(self) -> bool:
        """True if VMs with GPUs get CPUs of their own here."""
        return bool(self.cpus) and self.ratio.pinned is not None

    @property
    def floating_cpus(self) -> int:
        """How many CPUs no vCPU is pinned to, nor to another thread of the core where a core has one VM."""
        return self._floating

    @property
    def state(self) -> Hashable:
        """Equal for cells that give the same answers now and after the same promises."""
        pinned = tuple(sorted((len(core), count) for core, count in self._pins_on.items()))
        rooms = tuple(sorted((page, self.room_mib(page)) for page in self.bounds_mib))
        return (self.number, self.cpu_count, self.ratio, self.gpus, self.shared_vcpus, pinned, rooms)

    def promise(self, cell: NumaCell, page_kib: int | None, times: int = 1) -> None:
        """Count what a VM has of the cell; times: -1 when it goes."""
        self.promised_mib[page_kib or ORDINARY] += times * cell.memory_mib
        if cell.cpus and self._cores:
            self.pin(cell.cpus, times)
        else:
            self.shared_vcpus += times * cell.vcpus

    def pin(self, cpus: Iterable[int], times: int = 1) -> None:
        """Count vCPUs with CPUs of their own. A CPU that the cell has no more counts as one that is taken."""
        for cpu in cpus:
            core = self._core_of.get(cpu, (cpu,))
            was_taken = core in self._pins_on
            _add(self.pins, cpu, times)
            _add(self._pins_on, core, times)
            self._floating += len(core) * (was_taken - (core in self._pins_on))

    def floating(self) -> tuple[int, ...]:
        """The CPUs that vCPUs without CPUs of their own float over; all where each has a vCPU pinned to it."""
        free = [cpu for core in self._cores if core not in self._pins_on for cpu in core]
        return tuple(sorted(free or self.cpus))

    def room(self, page_kib: int | None, *, pinned: bool) -> CellRoom:
        """The part for one more VM."""
        vcpus = self.room_pinned() if pinned and self.pins_guests else self.room_shared()
        return CellRoom(self.number, vcpus, self.room_mib(page_kib or ORDINARY), self.gpus)

    def room_mib(self, page: int) -> int:
        """Memory that one more VM can have."""
        most_mib, free_mib = self.bounds_mib.get(page, NOTHING)
        left_mib = min(most_mib - self.promised_mib.get(page, 0), free_mib)
        return left_mib if left_mib > 0 else 0

    def room_shared(self) -> int:
        """vCPUs that float: within the ratio, and for one VM not more than there are CPUs to float over."""
        floating = self._floating
        left = min(self.ratio.shared * floating - self.shared_vcpus, floating)
        return left if left > 0 else 0

    def room_pinned(self) -> int:
        """vCPUs that get CPUs of their own, so that enough CPUs are left for those that float."""
        each, threads = self.ratio.pinned or 1, len(self._cores[0])
        on_pinned = sum(max(0, each - count) for count in self.pins.values()) if each > 1 else 0
        kept = -(-self.shared_vcpus // self.ratio.shared)
        free = max(0, self._floating - kept)
        return on_pinned + each * (free - free % threads)

    def pick_cpus(self, vcpus: int) -> tuple[int, ...]:
        """CPUs for so many vCPUs, those in use already first, then whole cores by number; within `room_pinned`."""
        each = self.ratio.pinned or 1
        used = (cpu for cpu in sorted(self.pins) if each > 1 for _ in range(each - self.pins[cpu]))
        free = (cpu for core in self._cores if core not in self._pins_on for cpu in core for _ in range(each))
        return tuple(sorted(islice(chain(used, free), vcpus)))


def _add(counter: Counter[_Key], key: _Key, times: int) -> None:
    """Add to a count, without keeping zeros."""
    counter[key] += times
    if not counter[key]:
        del counter[key]


def books_of(capacity: HostCapacity) -> list[CellBooks]:
    """The cells of a host with what is promised to its VMs; one entry for a host that is one pool."""
    facts, ratio = capacity.facts, capacity.constraints.cpu_ratio
    unusable = unmounted_sizes(facts)
    promised = {one.numa_node: one for one in capacity.promised}
    if is_pool(facts):
        number = pool_number(guest_cells(facts))
        bounds = _bounds(
            host_memory_mib(facts), host_reserve_mib(host_memory_mib(facts)), available_mib(facts), host_pools(facts),
            promised.get(number), unusable,
        )  # fmt: skip
        return [_filled(CellBooks(number, facts.cpus, bounds, ratio), promised.get(number))]
    found = []
    total_mib = sum(cell.memory_mib for cell in guest_cells(facts))
    for cell in guest_cells(facts):
        reserve_mib = host_reserve_mib(total_mib) * cell.memory_mib // total_mib
        free_mib = cell.memory_mib if cell.memory_available_mib is None else cell.memory_available_mib
        own = promised.get(cell.number)
        bounds = _bounds(cell.memory_mib, reserve_mib, free_mib, cell.hugepages, own, unusable)
        cores = cores_of(cell)
        gpus = sum(gpu.numa_node == cell.number for gpu in facts.gpus)
        count = sum(map(len, cores))
        found.append(_filled(CellBooks(cell.number, count, bounds, ratio, cores=cores, gpus=gpus), own))
    return found


def cores_of(cell: NumaNode) -> list[tuple[int, ...]]:
    """The CPUs of each core of a cell; each CPU counts as a core where the host reported no siblings."""
    cpus = cpu_numbers(cell.cpus)
    there, found = set(cpus), []
    for core in map(cpu_numbers, cell.cores):
        own = tuple(cpu for cpu in core if cpu in there)
        there.difference_update(own)
        if own:
            found.append(own)
    return [*found, *((cpu,) for cpu in cpus if cpu in there)]


def pool_number(cells: Sequence[NumaNode]) -> int:
    """The number under which a host with one cell is counted; none is known of a host that has no list of cells."""
    return cells[0].number if cells else 0


def _bounds(
    memory_mib: int,
    reserve_mib: int,
    free_mib: int,
    pools: Sequence[HugepageFacts],
    own: CellPromise | None,
    unusable: Collection[int],
) -> dict[int, tuple[int, int]]:
    """By page size. Pages in use when the host was read that were not promised to VMs are others'.

    unusable: page sizes that no guest can get; their memory still counts as used.
    """
    promised = {} if own is None else dict(own.memory_mib)
    sizes_mib = {pool.size_kib: (_mib(pool.total, pool), _mib(pool.free, pool)) for pool in pools}
    most_mib = max(0, memory_mib - reserve_mib - sum(total for total, _ in sizes_mib.values()))
    bounds = {ORDINARY: (most_mib, free_mib)}
    for size_kib, (total_mib, unused_mib) in sizes_mib.items():
        others_mib = max(0, total_mib - unused_mib - promised.get(size_kib, 0))
        bounds[size_kib] = (0, 0) if size_kib in unusable else (total_mib - others_mib, unused_mib)
    return bounds


def _mib(count: int, pool: HugepageFacts) -> int:
    return count * pool.size_kib // 1024


def _filled(books: CellBooks, own: CellPromise | None) -> CellBooks:
    if own is not None:
        books.shared_vcpus = own.shared_vcpus
        books.pin(own.pins if books.cpus else ())
        books.promised_mib = Counter(dict(own.memory_mib))
    return books
