# SPDX-License-Identifier: Apache-2.0
"""Every kind of event is in one list, every kind of the list is used, and events have one door.

mypy refuses an event whose kind is not of the list; kinds that are put together at run time are checked here.
"""

import ast
import re
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.uses_of_names import PACKAGE, files, nodes
from vgpuctl.model.event import EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.usecases.store.list_events import check_filter

_OF_EVENTS = re.compile(r"^events$|\b(?:FROM|INTO|UPDATE) events\b")
"""A statement on the table of events, or its name."""
OUTCOMES = ("created", "changed", "deleted")
MADE_UP = {f"{kind}-{outcome}" for kind in (*VpcKind, "external-network") for outcome in OUTCOMES}


@cache
def _names_in_code() -> dict[str, set[str]]:
    """Every `EventKind.NAME` and `tables.NAME` of the package, with the files that have it."""
    found: dict[str, set[str]] = {}
    for path in files():
        file = path.relative_to(PACKAGE).as_posix()
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found.setdefault(f"{node.value.id}.{node.attr}", set()).add(file)
    return found


@pytest.mark.parametrize("kind", sorted(MADE_UP))
def test_kinds_that_are_put_together_are_in_the_list(kind: str) -> None:
    assert EventKind(kind).meaning


def test_every_kind_is_used_somewhere() -> None:
    names = _names_in_code()
    unused = [kind.name for kind in EventKind if kind not in MADE_UP and f"EventKind.{kind.name}" not in names]
    assert unused == []


def test_every_kind_has_a_sentence_and_a_plain_name() -> None:
    for kind in EventKind:
        assert kind.meaning.endswith("."), kind
        assert kind.value == kind.name.lower().replace("_", "-")


def test_events_are_written_and_read_in_one_file() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in files()
        if path.parent == PACKAGE / "store"
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _OF_EVENTS.search(node.value)
    }
    rights = {"store/database_roles.py"}  # names the columns that an operator's role may fill
    rows = {"store/row_policies.py"}  # a tenant's events of before its time are not shown
    copies = {"store/postgresql.py"}  # a dry run's copy has none
    assert found - rights - rows - copies == {"store/events.py"}


@pytest.mark.parametrize(
    ("kind", "named"),
    [("quota-changed", "quota-set"), ("vm-movd", "vm-moved"), ("lisence-observed", "licence-observed")],
)
def test_an_unknown_kind_is_told_the_kinds_of_the_same_thing(kind: str, named: str) -> None:
    said: list[str] = []
    services: Any = SimpleNamespace(say=said.append)
    check_filter(services, EventFilter(kinds=(kind,)))
    (line,) = said
    assert f"did you mean {named}" in line
