# SPDX-License-Identifier: Apache-2.0
"""Constraints and preferences of a VM's placement beside its size: a policy, labels, a group of VMs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.errors import UsageError
from vgpuctl.model.policy import parse_policy

LABEL_PART = r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}"
"""The key or the value of a label, as a regular expression."""
_LABEL = re.compile(f"(?P<key>{LABEL_PART})=(?P<value>{LABEL_PART})")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

Label = tuple[str, str]


class Together(StrEnum):
    """Where the members of a group of one tenant's VMs are, as against each other."""

    APART = "apart"
    TOGETHER = "together"
    PREFER_APART = "prefer-apart"
    PREFER_TOGETHER = "prefer-together"

    def is_preference(self) -> bool:
        """True if the VM is also placed without it."""
        return self in (Together.PREFER_APART, Together.PREFER_TOGETHER)

    def is_apart(self) -> bool:
        """True if no two members are on one host, rather than all on one."""
        return self in (Together.APART, Together.PREFER_APART)


@dataclass(frozen=True)
class Constraints:
    """policy: as `parse_policy` reads it, None for what the hosts say.

    required, preferred: labels of each of the VM's GPUs, or of the host for a VM without GPUs. group: a name among the
    tenant's VMs; together: where its members are. partition: the number of the NVSwitch partition of its GPUs.
    """

    policy: str | None = None
    required: tuple[Label, ...] = ()
    preferred: tuple[Label, ...] = ()
    group: str | None = None
    together: Together = Together.PREFER_APART
    partition: int | None = None


NO_CONSTRAINTS = Constraints()


def read_constraints(
    *, policy: str | None = None, required: Sequence[str] = (), preferred: Sequence[str] = (), group: str | None = None
) -> Constraints:
    """Read constraints and preferences as a user writes them: labels `KEY=VALUE`, the group `NAME` or `NAME:apart`.

    Raises UsageError.
    """
    name, together = (None, Together.PREFER_APART) if group is None else parse_group(group)
    return Constraints(
        None if policy is None else str(parse_policy(policy)), _labels(required), _labels(preferred), name, together
    )


def parse_group(text: str) -> tuple[str, Together]:
    """Read a group of VMs: `NAME` or `NAME:apart`. Raises UsageError."""
    name, colon, rule = text.partition(":")
    if not _GROUP.fullmatch(name):
        raise UsageError(f"group {name!a} cannot be used", hint="1 to 63 letters, digits, '.', '-' or '_'")
    if not colon:
        return name, Together.PREFER_APART
    try:
        return name, Together(rule)
    except ValueError:
        raise UsageError(f"group {text!a}: {rule!a} is no rule", hint=f"use {name}:{', '.join(Together)}") from None


def parse_label(text: str) -> Label:
    """Read a label, `KEY=VALUE`. Raises UsageError."""
    match = _LABEL.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!a} is no label", hint="write KEY=VALUE, for example rack=r1")
    return match["key"], match["value"]


def _labels(texts: Sequence[str]) -> tuple[Label, ...]:
    return tuple(sorted({parse_label(text) for text in texts}))
