# SPDX-License-Identifier: Apache-2.0
"""Every state of the store for the pages: counts by kind, the rows of one kind, and the rows of one object.

model/states/ has the kinds and their meanings.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from vgpuctl.model.states import StateKind, StateRow
from vgpuctl.usecases.observed.states import States

ROWS_ON_PAGE = 200


@dataclass(frozen=True)
class ObjectsInState:
    """How many objects are in one state."""

    state: str
    meaning: str
    count: int


@dataclass(frozen=True)
class StateSummary:
    """One kind of state. counts: of each state, in the table's order; empty for a kind that is a number."""

    kind: StateKind
    counts: tuple[ObjectsInState, ...]
    objects: int


@dataclass(frozen=True)
class StatePage:
    """A part of the rows of one kind. first: number of its first row, total: rows that fit the state."""

    kind: StateKind
    rows: tuple[StateRow, ...]
    first: int
    total: int
    state: str | None


def summarise_states(states: States) -> list[StateSummary]:
    """Count every kind of state of the table."""
    found = []
    for kind, rows in states.items():
        counts = Counter(state for row in rows for state in row.states)
        named = tuple(ObjectsInState(state, text, counts[state]) for state, text in (kind.states or {}).items())
        found.append(StateSummary(kind, named, len(rows)))
    return found


def state_page(states: States, name: str, *, state: str | None, first: int) -> StatePage | None:
    """The rows of one kind, or of those in one state; None for a kind that is not in the table."""
    for kind, rows in states.items():
        if kind.name == name:
            fits = [row for row in rows if state is None or state in row.states]
            first = min(first, len(fits))
            return StatePage(kind, tuple(fits[first : first + ROWS_ON_PAGE]), first, len(fits), state)
    return None


def states_of_object(
    states: States, of: Collection[str], labels: Mapping[str, str]
) -> list[tuple[StateKind, StateRow]]:
    """The rows of one object: of kinds of these objects, that have these labels. Numbers without a value are left out,
    and so are counts of 0 by a label's values."""
    found = []
    for kind, rows in states.items():
        if kind.of not in of or not labels.keys() <= set(kind.labels):
            continue
        places = [(kind.labels.index(name), value) for name, value in labels.items()]
        for row in rows:
            is_empty_count = kind.states is None and kind.label_values is not None and not row.value
            if not is_empty_count and all(row.labels[at] == value for at, value in places):
                found.append((kind, row))
    return found
