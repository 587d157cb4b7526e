# SPDX-License-Identifier: Apache-2.0
"""A placement policy as a user writes it: `fragmentation`, `least-utilised@80`, `spread:0.3+binpack:0.7`."""

import math
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.errors import UsageError

USUAL_THRESHOLD_PERCENT = 80


class PolicyName(StrEnum):
    """The criterion of a placement."""

    FRAGMENTATION = "fragmentation"
    BINPACK = "binpack"
    SPREAD = "spread"
    ROUND_ROBIN = "round-robin"
    LEAST_UTILISED = "least-utilised"
    TOPOLOGY = "topology"
    PREDICTED = "predicted"


@dataclass(frozen=True)
class Policy:
    """Names with their weights, which add up to 1.

    threshold_percent: a GPU whose measured utilisation is above it comes last under `least-utilised`.
    """

    parts: tuple[tuple[PolicyName, float], ...] = ((PolicyName.FRAGMENTATION, 1.0),)
    threshold_percent: int = USUAL_THRESHOLD_PERCENT

    @property
    def names(self) -> tuple[PolicyName, ...]:
        """The names, in the order in which they were written."""
        return tuple(name for name, _ in self.parts)

    def __str__(self) -> str:
        """The policy as `parse_policy` reads it."""
        return "+".join(self._text(name, weight) for name, weight in self.parts)

    def _text(self, name: PolicyName, weight: float) -> str:
        has_threshold = name is PolicyName.LEAST_UTILISED and self.threshold_percent != USUAL_THRESHOLD_PERCENT
        threshold = f"@{self.threshold_percent}" if has_threshold else ""
        return f"{name}{threshold}" if len(self.parts) == 1 else f"{name}{threshold}:{weight!r}"


DEFAULT_POLICY = Policy()


def parse_policy(text: str, *, what: str | None = None) -> Policy:
    """Read a policy. Weights are relative; one left out is 1. Raises UsageError that names the policies.

    what: the option or field, for the error.
    """
    what = what or f"policy {text!r}"
    parts: list[tuple[PolicyName, float]] = []
    threshold = USUAL_THRESHOLD_PERCENT
    for part in text.split("+"):
        title, colon, weight_text = part.strip().partition(":")
        name_text, at, threshold_text = title.partition("@")
        try:
            name = PolicyName(name_text)
        except ValueError:
            raise UsageError(f"{what}: {name_text!a} is no policy", hint=f"use {', '.join(PolicyName)}") from None
        if name in (known for known, _ in parts):
            raise UsageError(f"{what} names {name} twice", hint="name each policy once")
        if at:
            threshold = _threshold(what, name, threshold_text)
        parts.append((name, _weight(what, weight_text) if colon else 1.0))
    total = sum(weight for _, weight in parts)
    return Policy(tuple((name, weight / total) for name, weight in parts), threshold)


def _weight(what: str, written: str) -> float:
    try:
        weight = float(written) if written.isascii() and "_" not in written else math.nan
    except ValueError:
        weight = math.nan
    if not 0 < weight <= 1e6:
        raise UsageError(f"{what}: {written!a} is no weight", hint="use a number above 0, as in spread:0.3")
    return weight


def _threshold(what: str, name: PolicyName, written: str) -> int:
    if name is not PolicyName.LEAST_UTILISED:
        raise UsageError(
            f"{what}: {name} has no threshold", hint=f"only {PolicyName.LEAST_UTILISED} has one, in percent"
        )
    if not (written.isascii() and written.isdigit() and len(written) <= 3 and int(written) <= 100):
        raise UsageError(f"{what}: {written!a} is no threshold", hint="use 0 to 100 percent, as in least-utilised@80")
    return int(written)
