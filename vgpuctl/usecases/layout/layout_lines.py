# SPDX-License-Identifier: Apache-2.0
"""Output of a run over the fleet: a line per step and a recap per host, as in Ansible."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.agent.wire.steps import Step
from vgpuctl.errors import (
    AuthenticationFailed,
    BecomeFailed,
    HostKeyChanged,
    HostKeyUnknown,
    HostUnreachable,
    PythonMissing,
    VgpuctlError,
)
from vgpuctl.planner.layout.result import Difference

_NO_LOGIN = (HostUnreachable, HostKeyUnknown, HostKeyChanged, AuthenticationFailed, BecomeFailed, PythonMissing)


class LineOutcome(StrEnum):
    """The outcome of one step."""

    OK = "ok"
    CHANGED = "changed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True)
class Line:
    """One thing on one host.

    subject: the GPU's address or `host`. before, after: read before and read back after, where a step was taken.
    reason: why it was skipped or failed. hint: what to do next.
    """

    host: str
    outcome: LineOutcome
    subject: str
    text: str
    before: str | None = None
    after: str | None = None
    reason: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class LeftBehind:
    """One thing that a failed run left otherwise than it was. gpu: None for the host's own."""

    gpu: str | None
    subject: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.gpu or 'host'}: {self.subject} is {self.after}, was {self.before}"


@dataclass(frozen=True)
class AppliedHost:
    """How the run went on one host.

    is_begun: False when earlier failures kept the run from it. undo: what rolls the done steps back, the last one
    first. differences: what was found at first. writes: how often the agent has written to the host. left: what a run
    that failed left otherwise than it was; None where the host could not be read afterwards.
    """

    host: str
    lines: tuple[Line, ...] = ()
    differences: tuple[Difference, ...] = ()
    undo: tuple[Step, ...] = ()
    writes: int = 0
    error: VgpuctlError | None = None
    is_begun: bool = True
    left: tuple[LeftBehind, ...] | None = ()

    @property
    def is_unreachable(self) -> bool:
        """True if nobody could log in."""
        return isinstance(self.error, _NO_LOGIN)

    def count(self, outcome: LineOutcome) -> int:
        """How many lines have this outcome."""
        return Counter(line.outcome for line in self.lines)[outcome]
