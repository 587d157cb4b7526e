# SPDX-License-Identifier: Apache-2.0
"""The host's processors and memory, by NUMA node."""

import re
from typing import Dict, Tuple

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import NumaNode

_NODES = "/sys/devices/system/node"
_LINE = re.compile(r"(?:Node \d+ )?(\w+)(?:\(\w+\))?:\s+(\d+)")


def read_nodes(host: Host) -> Tuple[NumaNode, ...]:
    """Return the host's NUMA nodes by number; nodes without processors count too."""
    numbers = sorted(
        int(name[4:]) for name in host.listdir_optional(_NODES) or [] if name.startswith("node") and name[4:].isdigit()
    )
    return tuple(
        NumaNode(
            number,
            host.read(f"{_NODES}/node{number}/cpulist").strip(),
            _kib(_numbers(host.read(f"{_NODES}/node{number}/meminfo")), "MemTotal") // 1024,
        )
        for number in numbers
    )


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
