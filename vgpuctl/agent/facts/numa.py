# SPDX-License-Identifier: Apache-2.0
"""The host's processors and memory, by NUMA node."""

import re
from typing import Dict, List, Optional, Set, Tuple

from vgpuctl.agent.facts import hugepages
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.memory import NumaNode
from vgpuctl.agent.wire.problem_codes import ProblemCode

_NODES = "/sys/devices/system/node"
_CPUS = "/sys/devices/system/cpu"
_LINE = re.compile(r"(?:Node \d+ )?(\w+(?:\(\w+\))?):\s+(\d{1,18})")


def read_nodes(host: Host) -> Tuple[NumaNode, ...]:
    """Return the host's NUMA nodes by number; nodes without processors count too."""
    numbers = sorted(
        int(name[4:]) for name in host.listdir_optional(_NODES) or [] if name.startswith("node") and name[4:].isdigit()
    )
    return tuple(_read_node(host, number) for number in numbers)


def _read_node(host: Host, number: int) -> NumaNode:
    memory = _numbers(host.read(f"{_NODES}/node{number}/meminfo"))
    cpus = host.read(f"{_NODES}/node{number}/cpulist").strip()
    return NumaNode(
        number,
        cpus,
        _kib(memory, "MemTotal") // 1024,
        _available_mib(memory),
        hugepages.read(host, hugepages.node_folder(number)),
        _read_cores(host, cpus),
    )


def _read_cores(host: Host, cpus: str) -> Tuple[str, ...]:
    """Return the threads of each core that has several (Linux ABI/stable/sysfs-devices-system-cpu)."""
    cores: List[str] = []
    seen: Set[int] = set()
    for cpu in _cpus(cpus):
        if cpu not in seen:
            siblings = (host.read_optional(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list") or "").strip()
            seen.update(_cpus(siblings))
            if siblings not in ("", str(cpu)):
                cores.append(siblings)
    return tuple(cores)


def _available_mib(memory: Dict[str, int]) -> Optional[int]:
    """Return about what MemAvailable would be: a node's meminfo has none (Linux mm/show_mem.c, si_mem_available)."""
    if "MemFree" not in memory:
        return None
    parts = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
    return sum(memory.get(part, 0) for part in parts) // 1024


def read_memory_mib(host: Host) -> Tuple[int, int]:
    """Return (total, available) memory of the host in MiB."""
    numbers = _numbers(host.read("/proc/meminfo"))
    return _kib(numbers, "MemTotal") // 1024, _kib(numbers, "MemAvailable") // 1024


def read_cpus(host: Host) -> int:
    """Return how many processors are online."""
    return len(_cpus(host.read(f"{_CPUS}/online").strip()))


def _cpus(text: str) -> List[int]:
    """Return the CPUs of a kernel CPU list such as `0-15,32-47`."""
    ranges = [part.split("-") for part in text.split(",") if part]
    return [cpu for part in ranges for cpu in range(int(part[0]), int(part[-1]) + 1)]


def _numbers(text: str) -> Dict[str, int]:
    return {match[1]: int(match[2]) for match in map(_LINE.match, text.splitlines()) if match}


def _kib(numbers: Dict[str, int], name: str) -> int:
    if name not in numbers:
        raise Problem(ProblemCode.UNREADABLE, f"the host's meminfo has no {name}", path="/proc/meminfo")
    return numbers[name]
