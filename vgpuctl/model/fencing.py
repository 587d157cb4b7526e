# SPDX-License-Identifier: Apache-2.0
"""How a host is powered off for good before its VMs start elsewhere."""

from dataclasses import dataclass

from vgpuctl.model.secret import ProgramLine


@dataclass(frozen=True)
class Fencing:
    """command: run on the operator's machine; exit status 0 says that the host is off. timeout_s: its time limit."""

    command: ProgramLine | None = None
    timeout_s: int = 180


NO_FENCING = Fencing()
