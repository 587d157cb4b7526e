# SPDX-License-Identifier: Apache-2.0
"""The answer of a check."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.model.health import HealthCode


class Severity(StrEnum):
    """error: what is declared or leased cannot work. warning: it may fail. note: good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing found. check: the id of a check, or the code of a finding about a GPU's health (docs/health.md).

    subject: a GPU's or VF's address, or `host`. read: what was read. fix: how to fix it. command: the fix as one line
    for a root shell on the host, None if no command does it.
    """

    check: CheckId | HealthCode
    severity: Severity
    subject: str
    read: str
    fix: str
    command: str | None = None
