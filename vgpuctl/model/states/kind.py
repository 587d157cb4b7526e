# SPDX-License-Identifier: Apache-2.0
"""The types of the table in this folder: a kind of state or number, and a row of one."""

from collections.abc import Mapping
from dataclasses import dataclass

UNKNOWN, GONE = "unknown", "gone"
HOST = ("host",)
GPU = ("host", "gpu")
SHARE = ("host", "gpu", "tenant", "vm", "share", "profile")
VM = ("host", "tenant", "vm")


@dataclass(frozen=True)
class StateKind:
    """One kind of state of one kind of object.

    name: the metric's name without `vgpuctl_`. of: the object. heading: on pages and in reports. labels: what tells
    objects apart; `share` is the mdev's UUID or the function's address, `gpu` a PCI address. states: each possible
    state with its meaning; an object can be in several. Without states it is a number. label_values: the meanings of
    the values of a label that has a closed set. is_counter: a number that only rises.
    """

    name: str
    of: str
    heading: str
    text: str
    labels: tuple[str, ...]
    states: Mapping[str, str] | None = None
    label_values: Mapping[str, Mapping[str, str]] | None = None
    is_counter: bool = False

    @property
    def metric(self) -> str:
        """The metric's name."""
        return f"vgpuctl_{self.name}"

    @property
    def shown_states(self) -> tuple[str, ...]:
        """The states that a row can be in: without the end of an object, which has no row any more."""
        return tuple(one for one in self.states or () if one != GONE)


@dataclass(frozen=True)
class StateRow:
    """The state of one object.

    labels: values in the order of the kind's labels. states: those it is in; value: of a number. at: when it was seen
    or began, seconds since the epoch, UTC; None if that is not known. text: the reason, empty without one.
    """

    labels: tuple[str, ...]
    states: tuple[str, ...] = ()
    value: float | None = None
    at: float | None = None
    text: str = ""


def number(
    name: str,
    of: str,
    heading: str,
    text: str,
    labels: tuple[str, ...],
    *,
    counter: bool = False,
    **values: dict[str, str],
) -> StateKind:
    """Describe a number of one kind of object. values: the meanings of the values of its labels."""
    return StateKind(name, of, heading, text, labels, None, values or None, counter)
