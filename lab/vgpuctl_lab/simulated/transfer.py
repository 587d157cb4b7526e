# SPDX-License-Identifier: Apache-2.0
"""The copying of a running guest as QEMU does it: rounds over its memory until the rest fits into the downtime."""

from dataclasses import dataclass

# QEMU asks again for what is dirty after this time where a round has nothing to copy.
_SHORTEST_ROUND_S = 0.05


@dataclass
class Rates:
    """What the link carries and what the guest dirties, in bytes a second, and how long it may stand still."""

    link: float
    dirty: float
    max_downtime_ms: int


class Transfer:
    """The copying of one guest. state_bytes: of its devices, copied while it stands still.

    processed, remaining: bytes of memory. elapsed_s: of the guest's time, which a lab may pass faster than a clock.
    """

    def __init__(self, memory_bytes: int, state_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self.state_bytes = state_bytes
        self.remaining = float(memory_bytes)
        self.processed = 0.0
        self.iteration = 1
        self.elapsed_s = 0.0
        self.downtime_ms = 0
        self._round_s = 0.0

    def advance(self, seconds: float, rates: Rates) -> bool:
        """Copy for a while. Returns True once the rest of the memory and the state fit into the downtime."""
        left = seconds
        while left > 0:
            if self._downtime_s(rates) * 1000 <= rates.max_downtime_ms:
                return True
            if not rates.link:
                break
            # What may remain at the switchover; below 0 the state alone takes too long.
            allowed = rates.link * rates.max_downtime_ms / 1000 - self.state_bytes
            wanted = self.remaining - max(0.0, allowed)
            spent = min(left, wanted / rates.link if wanted > 0 else _SHORTEST_ROUND_S)
            copied = min(self.remaining, spent * rates.link)
            self.processed += copied
            self.remaining -= copied
            self.elapsed_s += spent
            self._round_s += spent
            left -= spent
            if self.remaining < 1:
                self.remaining = min(float(self.memory_bytes), rates.dirty * self._round_s)
                self._round_s = 0.0
                self.iteration += 1
        self.elapsed_s += left
        return self._downtime_s(rates) * 1000 <= rates.max_downtime_ms

    def switch_over(self, rates: Rates) -> None:
        """Copy the rest while the guest stands still."""
        self.downtime_ms = round(self._downtime_s(rates) * 1000)
        self.elapsed_s += self.downtime_ms / 1000
        self.processed += self.remaining
        self.remaining = 0.0

    def _downtime_s(self, rates: Rates) -> float:
        return (self.remaining + self.state_bytes) / rates.link if rates.link else float("inf")
