# SPDX-License-Identifier: Apache-2.0
"""Checks of resources that a host has used up, by the rows of model/exhaustible.py; `advise` predicts them."""

from collections.abc import Iterator

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.model.exhaustible import DISK_POOL, HOST_MEMORY, HUGE_PAGES, Exhaustible
from vgpuctl.model.faults import remedy_of
from vgpuctl.model.units import MIB, format_mib
from vgpuctl.planner.doctor.examined import Examined
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.host_checks import HOST


def host_memory(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: the host's memory is nearly used up; the kernel ends programs, such as QEMU, at its end.

    Huge pages do not count: the kernel gives them to nobody else, whether they are used or not.
    """
    facts = seen.facts
    if facts.hugepages is not None and facts.why_unread("memory_mib", "memory_available_mib", "hugepages") is None:
        kept = sum(pool.total * pool.size_kib * 1024 for pool in facts.hugepages)
        total, free = facts.memory_mib * MIB - kept, facts.memory_available_mib * MIB
        yield from _find(HOST_MEMORY, Severity.WARNING, "memory", total, free)


def huge_pages(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: no huge page of a size is free, so the next VM that asks for them does not start."""
    for pool in seen.facts.hugepages or ():
        size = pool.size_kib * 1024
        name = f"{format_mib(pool.size_kib // 1024)} huge pages"
        yield from _find(HUGE_PAGES, Severity.NOTE, name, pool.total * size, pool.free * size)


def disk_pools(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: the room of a storage pool is nearly used up; QEMU pauses VMs whose disks cannot grow."""
    for one in seen.diagnostics.pool_spaces:
        name = f"disk pool {one.pool} on {one.filesystem}"
        yield from _find(DISK_POOL, Severity.WARNING, name, one.total_bytes, one.available_bytes)


def _find(kind: Exhaustible, severity: Severity, name: str, total: float, free: float) -> Iterator[Finding]:
    if kind.is_used_up(total - free, total):
        read = f"{name}: {kind.amount(total - free)} of {kind.amount(total)} are used"
        yield Finding(CheckId(str(kind.fault)), severity, HOST, read, remedy_of(kind.fault))
