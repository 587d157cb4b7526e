# SPDX-License-Identifier: Apache-2.0
"""The answer of a check."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.agent.wire.check_ids import CheckId


class Severity(StrEnum):
    """error: what is declared or leased cannot work. warning: it may fail. note: good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing found. subject: a GPU's or VF's address, or `host`. read: what was read.

    fix: how to fix it. command: the fix as one line for a root shell on the host, None if no command does it.
    """

    check: CheckId
    severity: Severity
    subject: str
    read: str
    fix: str
    command: str | None = None
