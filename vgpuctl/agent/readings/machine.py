# SPDX-License-Identifier: Apache-2.0
"""Readings of the host itself: its memory, pools and CPU time, and what these readings cost it."""

from typing import Dict, Optional

from vgpuctl.agent.facts import hugepages
from vgpuctl.agent.host import Host
from vgpuctl.agent.readings.recorder import Recorder
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.measures import HOST
from vgpuctl.agent.wire.memory import PoolRooms
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.readings import NOT_MEASURABLE, NOT_READABLE

# The first columns of /proc/stat's line `cpu` (proc(5)). The last two of guests are in user and nice already.
CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_KIB = 1024


def read(host: Host, rooms: PoolRooms, *, are_pools_read: bool, took_s: float, cpu_s: Optional[float]) -> Recorder:
    """Return what is measured of the host.

    rooms: of its pools. are_pools_read: False where there may be more of them. took_s, cpu_s: time and CPU time of the
    readings until now, if known.
    """
    found = Recorder(HOST)
    found.add("reading_seconds", max(took_s, 0.0))
    if cpu_s is None:
        found.unread("reading_cpu_seconds", "the agent's CPU time cannot be read")
    else:
        found.add("reading_cpu_seconds", max(cpu_s, 0.0))

    def memory() -> None:
        sizes = _sizes(host.read("/proc/meminfo"))
        for name, key in (("memory_total_bytes", "MemTotal"), ("memory_available_bytes", "MemAvailable")):
            if key in sizes:
                found.add(name, sizes[key] * _KIB)
            else:
                found.unread(name, f"/proc/meminfo has no {key}")

    def cpu() -> None:
        line = host.read("/proc/stat").partition("\n")[0].split()
        if line[:1] != ["cpu"] or not all(word.isdecimal() for word in line[1:]):
            raise Problem(ProblemCode.UNREADABLE, "/proc/stat does not begin with the CPUs' times", path="/proc/stat")
        ticks = host.clock_ticks()
        for mode, count in zip(CPU_MODES, line[1:]):
            found.add("cpu_seconds", int(count) / ticks, mode)

    def huge_pages() -> None:
        pools = hugepages.read(host)
        for pool in pools:
            if pool.total:
                found.add("hugepages_total_bytes", pool.total * pool.size_kib * _KIB, str(pool.size_kib))
                found.add("hugepages_free_bytes", pool.free * pool.size_kib * _KIB, str(pool.size_kib))
        kept = sum(pool.total * pool.size_kib for pool in pools)
        total = _sizes(host.read("/proc/meminfo")).get("MemTotal", 0)
        if kept < total:
            found.add("memory_without_hugepages_bytes", (total - kept) * _KIB)
        else:
            found.unread("memory_without_hugepages_bytes", f"{kept} KiB of {total} KiB are huge pages")

    for pool in rooms.unmeasured:
        found.add("pool_unmeasured", 1, pool.pool, pool.type, NOT_READABLE if pool.is_readable else NOT_MEASURABLE)
    for space in rooms.spaces:
        found.add("pool_total_bytes", space.total_bytes, space.pool, space.filesystem)
        found.add("pool_available_bytes", space.available_bytes, space.pool, space.filesystem)
    found.add("pools_read", float(are_pools_read))
    found.ask("memory_total_bytes memory_available_bytes", memory)
    found.ask("hugepages_total_bytes hugepages_free_bytes memory_without_hugepages_bytes", huge_pages)
    found.ask("cpu_seconds", cpu)
    return found


def _sizes(text: str) -> Dict[str, int]:
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdecimal():
            found[name] = int(words[0])
    return found
