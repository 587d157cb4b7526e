# SPDX-License-Identifier: Apache-2.0
"""When a share is attached to a guest that runs, and detached from it."""

from dataclasses import dataclass
from enum import Enum


class PlugTime(Enum):
    """The time at which a share is attached or detached, unless the operator says otherwise."""

    NOW = "while the guest runs"
    ON_REQUEST = "at the next start; while the guest runs on request"
    NEXT_START = "at the next start"


@dataclass(frozen=True)
class HotPlug:
    """The answer of a kind. reason: why not while the guest runs; None where it is done then."""

    time: PlugTime
    reason: str | None = None


WHILE_IT_RUNS = HotPlug(PlugTime.NOW)
