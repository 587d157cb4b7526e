# SPDX-License-Identifier: Apache-2.0
"""A VM's part of its host's CPU time: a weight against others, and a limit of each vCPU (libvirt: cputune)."""

import re

from vgpuctl.errors import UsageError

_PERCENT = re.compile(r"[0-9]{1,3}%")
PERIOD_US = 100_000
"""libvirt's `period`, which is the kernel's default (cgroup cpu.max)."""
LEAST_WEIGHT, MOST_WEIGHT = 2, 10_000
"""libvirt's `shares` that both versions of cgroups take: 2 to 262144 in the first, 1 to 10000 in the second."""


def parse_cpu_limit(text: str, /, *, what: str = "cpu_limit") -> int:
    """Read `50%` of one CPU for each vCPU. Raises UsageError."""
    if not _PERCENT.fullmatch(text) or not 1 <= int(text[:-1]) <= 100:
        meant = _PERCENT.fullmatch(f"{text}%") and 1 <= int(text) <= 100
        form = f"write {text}%" if meant else "write a percentage from 1% to 100%, for example 50%"
        raise UsageError(
            f"{what} is {text[:40]!a}, which is no part of a CPU", hint=f"{form}: of one CPU, for each vCPU"
        )
    return int(text[:-1])


def show_cpu_limit(percent: int) -> str:
    """Write a limit as `parse_cpu_limit` reads it."""
    return f"{percent}%"


def quota_us(percent: int) -> int:
    """The limit as libvirt's `quota` of a period."""
    return PERIOD_US * percent // 100
