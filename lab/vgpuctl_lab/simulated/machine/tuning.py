# SPDX-License-Identifier: Apache-2.0
"""Settings of a whole card that its driver was given; it forgets them with the card."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tuning:
    """power_mw: None for the board's default. clocks_mhz, memory_mhz: the range that the clocks of the GPU and of its
    memory are locked to, None where they are not. compute_mode: NVML's number."""

    power_mw: int | None = None
    clocks_mhz: tuple[int, int] | None = None
    compute_mode: int = 0
    memory_mhz: tuple[int, int] | None = None

    @staticmethod
    def read(fields: dict[str, Any]) -> "Tuning":
        """One from the state's file."""
        ranges: dict[str, Any] = {name: (one[0], one[1]) for name, one in fields.items() if isinstance(one, list)}
        return Tuning(**{**fields, **ranges})
