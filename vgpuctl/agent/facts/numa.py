# SPDX-License-Identifier: Apache-2.0
"""The host's processors and memory, by NUMA node."""

import re
from typing import Dict, Optional, Tuple

from vgpuctl.agent.facts import hugepages
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import NumaNode

_NODES = "/sys/devices/system/node"
_LINE = re.compile(r"(?:Node \d+ )?(\w+(?:\(\w+\))?):\s+(\d+)")


def read_nodes(host: Host) -> Tuple[NumaNode, ...]:
    """Return the host's NUMA nodes by number; nodes without processors count too."""
    numbers = sorted(
        int(name[4:]) for name in host.listdir_optional(_NODES) or [] if name.startswith("node") and name[4:].isdigit()
    )
    return tuple(_read_node(host, number) for number in numbers)


def _read_node(host: Host, number: int) -> NumaNode:
    memory = _numbers(host.read(f"{_NODES}/node{number}/meminfo"))
    return NumaNode(
        number,
        host.read(f"{_NODES}/node{number}/cpulist").strip(),
        _kib(memory, "MemTotal") // 1024,
        _available_mib(memory),
        hugepages.read(host, hugepages.node_folder(number)),
    )


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
    text = host.read("/sys/devices/system/cpu/online").strip()
    ranges = [part.split("-") for part in text.split(",") if part]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)


def _numbers(text: str) -> Dict[str, int]:
    return {match[1]: int(match[2]) for match in map(_LINE.match, text.splitlines()) if match}


def _kib(numbers: Dict[str, int], name: str) -> int:
    if name not in numbers:
        raise Problem("unreadable", f"the host's meminfo has no {name}", path="/proc/meminfo")
    return numbers[name]
