# SPDX-License-Identifier: Apache-2.0
"""Files of vgpuctl that every guest with a GPU driver gets, beside what the set-up itself writes."""

import base64
from dataclasses import dataclass

from vgpuctl.guests.facts.guest_report import PROBE_PATH, probe_script


@dataclass(frozen=True)
class GuestFile:
    """One file. mode: as chmod takes it. content: its bytes, in base64."""

    path: str
    mode: str
    content: str


def guest_files() -> tuple[GuestFile, ...]:
    """The probe of `check-vm`. It is there in every guest, and runs only where the tenant allows it."""
    return (GuestFile(PROBE_PATH, "0755", base64.b64encode(probe_script().encode()).decode()),)
