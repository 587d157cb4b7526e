# SPDX-License-Identifier: Apache-2.0
"""A finding, a recommendation, and their ids. docs/advice.md has the kinds, made from AdviceKind."""

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from vgpuctl.model.faults import FaultId
from vgpuctl.model.vm import printed_name


class AdviceKind(enum.StrEnum):
    """The kind of a recommendation. meaning: one sentence for docs/advice.md."""

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> "AdviceKind":
        """Make a member of its name and its meaning."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    SMALLER_PROFILE = (
        "smaller-profile",
        "VMs never used the framebuffer of their profile; a smaller one leaves room for others.",
    )
    LARGER_PROFILE = (
        "larger-profile",
        "A VM uses all of its framebuffer, or will soon; a larger profile gives it room.",
    )
    SCHEDULER = "scheduler", "Neighbours use time that VMs of a GPU were promised; another vGPU scheduler keeps it."
    REBALANCE = "rebalance", "VMs of a GPU want more time than it has; one of them fits on a calmer GPU."
    SIZE_MODE = "size-mode", "VMs wait because the vGPUs of a GPU must have one size; mixed-size mode admits them."
    IDLE_CARD = "idle-card", "A VM holds a whole card and does not use it."
    POWER_LIMIT = "power-limit", "A GPU draws all the power that its limit allows; a higher limit lets its VMs go on."


class Confidence(enum.StrEnum):
    """How far the data carry a recommendation.

    high: measured for a week, and the gain follows from placing rules alone. medium: measured for a day. low: less, or
    the gain is an upper bound.
    """

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    @classmethod
    def of(cls, measured_hours: float, *, is_bound: bool = False) -> "Confidence":
        """The confidence by the hours that were measured. is_bound: the gain is an upper bound."""
        if measured_hours >= 168 and not is_bound:
            return cls.HIGH
        return cls.MEDIUM if measured_hours >= 24 else cls.LOW


@dataclass(frozen=True)
class Gain:
    """The result of the replay. text: in words. value: in unit; at_most: True if it is an upper bound."""

    text: str
    value: float
    unit: str
    at_most: bool = False


@dataclass(frozen=True)
class Advice:
    """One change that is worth it.

    before, after: what is declared, by key. commands: that do it, in order. proof: what was replayed, and how the
    replay of the present compares with what was measured. measured_hours: the data that it rests on.
    """

    id: str
    kind: AdviceKind
    host: str
    gpu: str | None
    tenant: str | None
    vm: str | None
    text: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    commands: tuple[str, ...]
    gain: Gain
    proof: str
    confidence: Confidence
    measured_hours: float

    @property
    def diff(self) -> list[str]:
        """The plan's diff: a line for each value that goes and each that comes."""
        keys = list(dict.fromkeys([*self.before, *self.after]))
        lines = []
        for key in keys:
            if self.before.get(key) != self.after.get(key):
                lines += [f"- {key}: {self.before[key]}"] if key in self.before else []
                lines += [f"+ {key}: {self.after[key]}"] if key in self.after else []
        return lines


@dataclass(frozen=True)
class CausingVm:
    """A VM behind what is used of a resource. tenant: empty for a domain of the host that is no VM of vgpuctl.

    amount: in bytes, or seats. ratio: its part of the growth, or of what is used where nothing grows. host: of such a
    domain, where the resource is of several hosts; two of them may each have one of this name.
    """

    tenant: str
    vm: str
    amount: float
    ratio: float
    host: str = ""

    @property
    def name(self) -> str:
        """The VM as events name it."""
        if self.tenant:
            return printed_name(self.tenant, self.vm)
        return f"the foreign domain {self.vm}{f' of {self.host}' if self.host else ''}"


@dataclass(frozen=True)
class MeasuredFault:
    """Something that goes wrong now, with the VM that causes it.

    victims: VMs that suffer from it. figures: what was measured, by name with its unit.
    resource: what is used up, where it is not a VM's own. Then there is no GPU, and `causes` has the VMs, the largest
    first; host is empty where the resource is not of one host. hosts: that have the resource.
    """

    fault: FaultId
    host: str
    gpu: str
    tenant: str
    vm: str
    share: str
    profile: str
    text: str
    victims: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    resource: str = ""
    causes: tuple[CausingVm, ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of a finding from look to look."""
        return (self.fault.value, self.host, self.gpu, self.tenant, self.vm, self.resource)

    @property
    def subject(self) -> str:
        """The subject of its event."""
        return self.resource or printed_name(self.tenant, self.vm)


def advice_id(kind: AdviceKind, *what: str) -> str:
    """An id that stays while the advice is about the same things."""
    digest = hashlib.sha256("\0".join((kind.value, *what)).encode()).hexdigest()
    return f"{kind.value}-{digest[:8]}"
