# SPDX-License-Identifier: Apache-2.0
"""The clocks that the agent has locked, for NVML does not tell them.

The note lies in /run, which goes with the boot like the lock. A step that takes the card from its driver or resets it
ends the note.
"""

import json
from typing import Dict, Optional, Sequence

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.tuning import GPU_CLOCKS, UNLOCKED, ClockDomain, Clocks

PATH = "/run/vgpuctl/clocks.json"
# The driver rounds a clock to a step of the board.
_TOLERANCE_MHZ = 30


def key_of(address: str, domain: ClockDomain) -> str:
    """Return what a note of a card's clocks is under."""
    return address if domain == GPU_CLOCKS else f"{address} {domain.name}"


def read(host: Host) -> Dict[str, Clocks]:
    """Return {key_of: the range that was set last}; a note that cannot be read is none."""
    try:
        found = json.loads(host.read_optional(PATH) or "{}")
        return {str(key): (int(lowest), int(highest)) for key, (lowest, highest) in found.items()}
    except (Problem, ValueError, TypeError, AttributeError):
        return {}


def write(host: Host, key: str, clocks_mhz: Clocks) -> None:
    """Note what was set. Raises Problem."""
    _write(host, {**read(host), key: clocks_mhz})


def forget(host: Host, addresses: Sequence[str]) -> None:
    """End the notes of cards whose driver has forgotten its clocks. Raises Problem."""
    noted = read(host)
    kept = {key: clocks for key, clocks in noted.items() if key.partition(" ")[0] not in addresses}
    if kept != noted:
        _write(host, kept)


def confirmed(noted: Optional[Clocks], clock_mhz: Optional[int]) -> Optional[Clocks]:
    """Return the note unless the clock that the GPU runs with disproves it: then somebody has unlocked it."""
    if noted is None or noted == UNLOCKED or clock_mhz is None:
        return noted
    return noted if clock_mhz <= noted[1] + _TOLERANCE_MHZ else None


def _write(host: Host, noted: Dict[str, Clocks]) -> None:
    host.put_file(PATH, json.dumps(dict(sorted(noted.items()))).encode(), 0o644)
