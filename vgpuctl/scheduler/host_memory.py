# SPDX-License-Identifier: Apache-2.0
"""How much memory a host has for one more VM, ordinary and in huge pages. A pool of huge pages is kept for its own."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from vgpuctl.agent.wire.facts import HostFacts, HugepageFacts
from vgpuctl.model.guest_memory import GuestMemory
from vgpuctl.model.placement import HostCapacity

LARGEST_RESERVE_MIB = 2048


def host_reserve_mib(memory_mib: int) -> int:
    """Memory that is never promised to VMs: a sixteenth of the host's, at most 2 GiB."""
    return min(memory_mib // 16, LARGEST_RESERVE_MIB)


def most_mib(facts: HostFacts) -> int:
    """The ordinary memory that all VMs together can have: none of the reserve, none of the huge pages."""
    pools_mib = sum(pool.total * pool.size_kib for pool in facts.hugepages or ()) // 1024
    return max(0, facts.memory_mib - host_reserve_mib(facts.memory_mib) - pools_mib)


def pool_of(facts: HostFacts, page_kib: int) -> HugepageFacts | None:
    """The host's pool of huge pages of one size, None when it has none at all."""
    return next((pool for pool in facts.hugepages or () if pool.size_kib == page_kib and pool.total), None)


def bounds_mib(facts: HostFacts, promised_mib: int, page_kib: int | None = None) -> tuple[int, int]:
    """The most that all VMs together can have, and what was free when the host was read.

    page_kib: of huge pages of this size. Those in use then that were not promised to VMs, promised_mib, are others'.
    """
    if page_kib is None:
        return most_mib(facts), facts.memory_available_mib
    pool = pool_of(facts, page_kib)
    if pool is None:
        return 0, 0
    total_mib, free_mib = (count * page_kib // 1024 for count in (pool.total, pool.free))
    return total_mib - max(0, total_mib - free_mib - promised_mib), free_mib


def free_pages_mib(facts: HostFacts, page_kib: int) -> int:
    """What was free in huge pages of a size."""
    return bounds_mib(facts, 0, page_kib)[1]


def promised_by_page(capacity: HostCapacity) -> dict[int | None, int]:
    """MiB that belong to VMs, by the size of the pages; None for ordinary memory."""
    return {None: capacity.promised_memory_mib, **dict(capacity.promised_hugepages_mib)}


def with_promised(
    capacity: HostCapacity, *, more: Iterable[GuestMemory] = (), less: Iterable[GuestMemory] = ()
) -> HostCapacity:
    """The host with more or less memory that belongs to VMs."""
    promised = Counter(promised_by_page(capacity))
    for memory in less:
        promised[memory.page_kib] -= memory.mib
    promised = Counter({page_kib: max(0, mib) for page_kib, mib in promised.items()})
    for memory in more:
        promised[memory.page_kib] += memory.mib
    pages = tuple(sorted((page_kib, mib) for page_kib, mib in promised.items() if page_kib is not None and mib))
    return replace(capacity, promised_memory_mib=promised[None], promised_hugepages_mib=pages)


def with_memory_back(facts: HostFacts, given_back: Iterable[GuestMemory]) -> HostFacts:
    """The facts as they would be read when these guests were off."""
    freed: Counter[int | None] = Counter()
    for memory in given_back:
        freed[memory.page_kib] += memory.mib
    pools = facts.hugepages
    if pools is not None:
        pools = tuple(
            replace(pool, free=min(pool.total, pool.free + freed[pool.size_kib] * 1024 // pool.size_kib))
            for pool in pools
        )
    available_mib = min(facts.memory_mib, facts.memory_available_mib + freed[None])
    return replace(facts, memory_available_mib=available_mib, hugepages=pools)


def with_more_pages(facts: HostFacts, page_kib: int, more_mib: int) -> HostFacts:
    """The facts as they would be read when ordinary memory that is free became huge pages."""
    pools = {pool.size_kib: pool for pool in facts.hugepages or ()}
    pool = pools.get(page_kib, HugepageFacts(page_kib, 0, 0))
    more = more_mib * 1024 // page_kib
    pools[page_kib] = replace(pool, total=pool.total + more, free=pool.free + more)
    available_mib = max(0, facts.memory_available_mib - more_mib)
    return replace(facts, memory_available_mib=available_mib, hugepages=tuple(pools[size] for size in sorted(pools)))
