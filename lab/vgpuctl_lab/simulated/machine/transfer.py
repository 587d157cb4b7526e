# SPDX-License-Identifier: Apache-2.0
"""The copying of a running guest as QEMU does it: rounds over its memory until the rest fits into the downtime."""

from dataclasses import dataclass

# QEMU asks again for what is dirty after this time where a round has nothing to copy.
_SHORTEST_ROUND_S = 0.05
_ROUNDING_MS = 0.001


@dataclass
class Rates:
    """What the link carries, of it of the devices' state, and what the guest dirties, in bytes a second.

    max_downtime_ms: how long the guest may stand still.
    """

    link: float
    state: float
    dirty: float
    max_downtime_ms: int


class Transfer:
    """The copying of one guest. state_bytes: of its devices, copied while it stands still.

    processed: bytes that were sent; state_processed: of them, of the state. remaining: bytes of memory.
    elapsed_s: of the guest's time, which a lab may pass faster than a clock.
    """

    def __init__(self, memory_bytes: int, state_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self.state_bytes = state_bytes
        self.remaining = float(memory_bytes)
        self.processed = 0.0
        self.state_processed = 0
        self.iteration = 1
        self.elapsed_s = 0.0
        self.downtime_ms = 0
        self._round_s = 0.0

    def expected_s(self, rates: Rates) -> float:
        """How long the copying takes at least; 1 while nothing can be copied."""
        return self.memory_bytes / rates.link + self._state_s(rates) if rates.link else 1.0

    def advance(self, seconds: float, rates: Rates) -> bool:
        """Copy for a while. Returns True once the rest of the memory and the state fit into the downtime."""
        left = seconds
        while left > 0 and rates.link:
            # What may remain at the switchover; below 0 the state alone takes too long.
            allowed = rates.link * (rates.max_downtime_ms / 1000 - self._state_s(rates))
            wanted = self.remaining - max(0.0, allowed)
            spent = min(left, max(0.0, wanted) / rates.link)
            if wanted < 1:
                # QEMU asks only here what the guest has dirtied meanwhile.
                self.remaining = min(float(self.memory_bytes), self.remaining + rates.dirty * self._round_s)
                self._round_s = 0.0
                self.iteration += 1
                if self._downtime_s(rates) * 1000 <= rates.max_downtime_ms + _ROUNDING_MS:
                    return True
                spent = min(left, _SHORTEST_ROUND_S)
            copied = min(self.remaining, spent * rates.link)
            self.processed += copied
            self.remaining -= copied
            self.elapsed_s += spent
            self._round_s += spent
            left -= spent
        self.elapsed_s += left
        return False

    def switch_over(self, rates: Rates) -> None:
        """Copy the rest while the guest stands still."""
        self.downtime_ms = round(self._downtime_s(rates) * 1000)
        self.elapsed_s += self.downtime_ms / 1000
        self.state_processed = self.state_bytes
        self.processed += self.remaining + self.state_bytes
        self.remaining = 0.0

    def _downtime_s(self, rates: Rates) -> float:
        return self.remaining / rates.link + self._state_s(rates) if rates.link else float("inf")

    def _state_s(self, rates: Rates) -> float:
        return self.state_bytes / rates.state
