# SPDX-License-Identifier: Apache-2.0
"""Shares that are promised to a tenant for a time, once or again and again."""

import math
from dataclasses import dataclass

from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.lease import Share

Window = tuple[float, float]
"""Begin and end, seconds since the epoch, UTC."""

MOST_WINDOWS = 60
"""Windows of a repeated reservation that are looked at when it is made."""


@dataclass(frozen=True)
class Reservation:
    """One reservation. every_s: the time from one begin to the next, None for once. vm_uuid: the VM that uses it."""

    tenant: str
    name: str
    gpus: tuple[GpuRequest, ...]
    host: str
    shares: tuple[Share, ...]
    begin: float
    end: float
    every_s: float | None = None
    vm_uuid: str | None = None

    def window_after(self, at: float) -> Window | None:
        """The window that `at` lies in, or the next one; None when it is over."""
        if at < self.end:
            return self.begin, self.end
        if self.every_s is None:
            return None
        count = math.floor((at - self.end) / self.every_s) + 1
        return self.begin + count * self.every_s, self.end + count * self.every_s

    def overlaps(self, begin: float, end: float) -> bool:
        """True if any of its windows has a part in a range; the end may be infinite."""
        window = self.window_after(begin)
        return window is not None and window[0] < end

    def windows(self, count: int = MOST_WINDOWS) -> list[Window]:
        """Its first windows."""
        if self.every_s is None:
            return [(self.begin, self.end)]
        return [(self.begin + number * self.every_s, self.end + number * self.every_s) for number in range(count)]

    def is_over(self, at: float) -> bool:
        """True if no window is left."""
        return self.window_after(at) is None
