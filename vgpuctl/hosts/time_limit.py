# SPDX-License-Identifier: Apache-2.0
"""One limit for a job of several waits, so that they share it."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TimeLimit:
    """A time allowed, counted from its making. seconds: as the caller gave it, for messages."""

    seconds: float
    started: float = field(default_factory=time.monotonic)

    def left_s(self, *, at_most: float | None = None) -> float:
        """Return the seconds left, never 0, because many libraries take 0 for something else."""
        left = max(0.001, self.started + self.seconds - time.monotonic())
        return left if at_most is None else min(left, at_most)

    def is_over(self) -> bool:
        """True if the time has passed."""
        return time.monotonic() >= self.started + self.seconds
