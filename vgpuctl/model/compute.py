# SPDX-License-Identifier: Apache-2.0
"""Compute time of a GPU as a user asks for it: how it is promised, and how much of one GPU."""

import re
from enum import StrEnum

from vgpuctl.errors import UsageError

_PERCENT = re.compile(r"[0-9]{1,3}(?:\.[0-9])?%")


class ComputeKind(StrEnum):
    """How a share's part of its GPU's compute time is promised, the weakest first.

    best-effort: nothing is; neighbours may take all of it. at-least: the part is its own while it wants it, and it may
    have more. guaranteed: the part is its own whatever the neighbours do, and none of it is theirs.
    """

    BEST_EFFORT = "best-effort"
    AT_LEAST = "at-least"
    GUARANTEED = "guaranteed"

    def covers(self, wanted: "ComputeKind") -> bool:
        """True if a share of this kind is what somebody who wants the other has asked for."""
        order = list(ComputeKind)
        return order.index(self) >= order.index(wanted)


def parse_percent(text: str, *, what: str) -> float:
    """Read `25%` or `12.5%`: of one GPU. Raises UsageError."""
    if not _PERCENT.fullmatch(text):
        raise UsageError(f"{what}={text!a} is no part of a GPU", hint="write a percentage of one GPU: 25%, 12.5%")
    percent = float(text[:-1])
    if not 0 < percent <= 100:
        raise UsageError(f"{what}={text} is no part of a GPU", hint="write more than 0% and at most 100% of one GPU")
    return percent


def percent_text(percent: float) -> str:
    """`25%`, `16.7%`: rounded down, so that no promise reads as more than it is."""
    tenths = int(percent * 10 + 1e-6)
    return f"{tenths // 10}%" if tenths % 10 == 0 else f"{tenths / 10}%"
