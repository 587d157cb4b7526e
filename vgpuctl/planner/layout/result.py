# SPDX-License-Identifier: Apache-2.0
"""The planner's answer for one host."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from vgpuctl.agent.wire.facts import Holder
from vgpuctl.agent.wire.steps import Step
from vgpuctl.model.plural import counted


class Phase(IntEnum):
    """When a step is taken, over all GPUs of a host (reference 9, boot order; tear-down goes the other way).

    The driver refuses mixed sizes together with fixed-share (reference 3.3), so mixed sizes end before the scheduler
    changes and begin after it. A card that changes hands for its VFs forgets its settings, so they come after.
    """

    HOST = 0
    STOP_SERVICES = 1
    DRIVER = 2
    TEAR_DOWN = 3
    MIG_MODE = 4
    VIRTUAL_FUNCTIONS = 5
    INSTANCES = 6
    CARD_SETTINGS = 7
    EQUAL_SIZES = 8
    SCHEDULER = 9
    MIXED_SIZES = 10
    HAND_OVER = 11
    START_SERVICES = 12
    SHARES = 13
    CONTAINERS = 14

    def needs_driver_alone(self) -> bool:
        """True if a step of this phase fails while another program has the GPU open (reference 9, row 6)."""
        return self in (Phase.DRIVER, Phase.TEAR_DOWN, Phase.MIG_MODE, Phase.VIRTUAL_FUNCTIONS, Phase.HAND_OVER)


@dataclass(frozen=True)
class Disturbed:
    """One VM or vGPU that a step takes its device from.

    device: the function or mdev. lease, vm, tenant: None when the store knows nothing of it, so it is not vgpuctl's
    to stop. holders: processes that have the device open now; empty when nothing runs on it.
    """

    device: str
    lease: str | None = None
    vm: str | None = None
    tenant: str | None = None
    holders: tuple[Holder, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """True if the store knows nothing of it."""
        return self.lease is None

    @property
    def is_running(self) -> bool:
        """True if a process has the device open."""
        return bool(self.holders)

    def __str__(self) -> str:
        who = f"VM {self.vm} of {self.tenant}" if self.vm else "a VM or vGPU that vgpuctl does not know"
        pids = ", ".join(f"{holder.command} (pid {holder.pid})" for holder in self.holders)
        return f"{who} on {self.device}" + (f", held by {pids}" if pids else "")


@dataclass(frozen=True)
class PlannedStep:
    """One step, what it does in words, what rolls it back (in order), whom it disturbs.

    gpu: the physical function, None for the host's own. processes: programs of the host that have the GPU open now;
    the agent waits for them a little and then refuses. needs_reset: it resets the GPU, or the driver may want a reset
    afterwards; it is taken only when that is allowed. disrupts: what it disturbs for all GPUs of the host, in words; it
    is taken only when VMs may be disturbed, though none is in its way.
    """

    phase: Phase
    step: Step
    summary: str
    gpu: str | None = None
    undo: tuple[Step, ...] = ()
    disturbs: tuple[Disturbed, ...] = ()
    processes: tuple[Holder, ...] = ()
    needs_reset: bool = False
    disrupts: str = ""


@dataclass(frozen=True)
class Difference:
    """One thing that is not as declared. subject: stable, kebab-case. remedy: how to fix it where no step does."""

    gpu: str | None
    subject: str
    declared: str
    found: str
    remedy: str | None = None

    def __str__(self) -> str:
        return f"{self.gpu or 'host'}: {self.subject} is {self.found}, declared {self.declared}"


@dataclass(frozen=True)
class LayoutObstacle:
    """Why a declared thing cannot be done now. A GPU with an obstacle gets no steps at all.

    code: stable, kebab-case. origin: `FILE:LINE` of the declaration.
    """

    gpu: str | None
    code: str
    reason: str
    remedy: str | None = None
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.gpu or 'host'}: {self.reason} [{self.code}]"

    @property
    def follows_from_use(self) -> bool:
        """True if the GPU may be able to take its layout once it has no vGPUs and no users."""
        return self.code in ("mig-in-use", "no-free-vf", "no-room")


@dataclass(frozen=True)
class Stranded:
    """Why a GPU gets no steps although each could be taken: where they lead its VMs or shares find no room."""

    code: str
    reason: str
    remedy: str = "move or delete a VM of it, or stop it with --hold release, then run again"


@dataclass(frozen=True)
class HostPlan:
    """Everything about one host and its declared layout.

    differences: what is not as declared; none means that the host is in its layout. steps: in the order to take them.
    later: what can be planned only once these steps are done (read the facts and plan again). notes: what was declared
    and could not be looked at. unknown: the GPUs of such notes.
    """

    steps: tuple[PlannedStep, ...] = ()
    differences: tuple[Difference, ...] = ()
    obstacles: tuple[LayoutObstacle, ...] = ()
    later: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def is_in_layout(self) -> bool:
        """True if nothing differs and nothing stands in the way."""
        return not self.differences and not self.obstacles

    def unless_unread(self, answer: bool) -> bool | None:
        """The answer whether all is as declared; None where it says yes and a declared setting could not be read."""
        return None if answer and self.notes else answer

    @property
    def settled_in_words(self) -> str:
        """The words for a host without differences: a setting that could not be read does not count as declared."""
        return settled_in_words(self.notes)

    @property
    def undo(self) -> tuple[Step, ...]:
        """The undo of all steps, the last one first."""
        return tuple(step for planned in reversed(self.steps) for step in planned.undo)

    def disturbed_by_gpu(self) -> dict[str, tuple[Disturbed, ...]]:
        """Everyone whom a step disturbs, each once, by GPU in the order of the steps."""
        found: dict[str, dict[Disturbed, None]] = {planned.gpu: {} for planned in self.steps if planned.gpu}
        for planned in self.steps:
            if planned.gpu is not None:
                found[planned.gpu].update(dict.fromkeys(planned.disturbs))
        return {gpu: tuple(one) for gpu, one in found.items()}

    @property
    def needs_reset(self) -> bool:
        """True if a step resets a GPU."""
        return any(planned.needs_reset for planned in self.steps)


def settled_in_words(unread: Sequence[str]) -> str:
    """The words for a host without differences. unread: the settings that could not be looked at."""
    return f"as declared, with {counted(len(unread), 'unread setting')}" if unread else "as declared"
