# SPDX-License-Identifier: Apache-2.0
"""VMs that wait for their turn."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.model.vm import VmRequest

USUAL_AGEING_S = 3600.0


class QueuePolicy(StrEnum):
    """Who comes first."""

    FIFO = "fifo"
    PRIORITY = "priority"
    SHORTEST_FIRST = "shortest-first"
    FAIR_SHARE = "fair-share"


class QueueKind(StrEnum):
    """What is waited for: a new VM, or one that gave way and starts again on its host."""

    CREATE = "create"
    START = "start"


@dataclass(frozen=True)
class QueueSettings:
    """How the queue is put in order. ageing_s: an entry moves up with time, and after this long nobody overtakes it."""

    policy: QueuePolicy = QueuePolicy.FIFO
    ageing_s: float = USUAL_AGEING_S


@dataclass(frozen=True)
class QueueEntry:
    """One VM that waits since queued_at (seconds since the epoch, UTC). reason: why it did not start at last look."""

    id: int
    kind: QueueKind
    request: VmRequest
    queued_at: float
    reason: str | None = None

    @property
    def name(self) -> str:
        """The VM's name for messages, with its tenant's."""
        return f"{self.request.tenant}.{self.request.name}"
