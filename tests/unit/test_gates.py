# SPDX-License-Identifier: Apache-2.0
"""Each safety rule has one gate, and this file lists every path that may reach what the gate guards.

The rows stand in gates_of_SUBJECT.py. Each names a primitive that could break the rule and every function that may
call it. The code is read, not run: a new caller fails the test until somebody has decided that it passes through the
gate, and so does a row that no longer matches anything. Calls are found by name, `NAME(…)` or `….NAME(…)`, also when
the name is only handed on.
"""

import ast

import pytest

from tests.e2e.operate.command_events import CHANGING, READING
from tests.unit.gates_of_clusters import CLUSTERS, NOT_JOINED, TELLERS
from tests.unit.gates_of_guests import GUESTS
from tests.unit.gates_of_logins import LOGINS
from tests.unit.gates_of_names import NAMES
from tests.unit.gates_of_networks import NETWORKS
from tests.unit.gates_of_placing import PLACING
from tests.unit.gates_of_preemption import PREEMPTION
from tests.unit.gates_of_restrictions import RESTRICTIONS
from tests.unit.gates_of_returns import RETURNS
from tests.unit.gates_of_sharing import SHARING
from tests.unit.gates_of_store import STORE
from tests.unit.gates_of_volumes import VOLUMES
from tests.unit.uses_of_names import PACKAGE, Guarded, nodes, uses
from vgpuctl.cli.contents import COMMANDS

GATES = [
    *CLUSTERS,
    *GUESTS,
    *LOGINS,
    *NAMES,
    *NETWORKS,
    *PLACING,
    *PREEMPTION,
    *RESTRICTIONS,
    *RETURNS,
    *SHARING,
    *STORE,
    *VOLUMES,
]


def _callers(guarded: Guarded) -> set[str]:
    return {
        use.place
        for use in uses()
        if use.name == guarded.name
        and use.on.endswith(guarded.on)
        and (use.is_call or not guarded.calls_only)
        and not use.place.startswith(f"{guarded.owner}:")
    }


@pytest.mark.parametrize("guarded", GATES, ids=lambda one: f"{one.name}: {one.rule}")
def test_only_the_gate_reaches_what_it_guards(guarded: Guarded) -> None:
    found = _callers(guarded)
    bypassing = sorted(found - guarded.callers)
    assert not bypassing, f"{guarded.rule}: {guarded.name} is used by {', '.join(bypassing)}, past the gate"
    stale = sorted(guarded.callers - found)
    assert not stale, f"{guarded.rule}: {', '.join(stale)} no longer uses {guarded.name}; take it out of the table"


@pytest.mark.parametrize("guarded", GATES, ids=lambda one: f"{one.name}: {one.rule}")
def test_what_is_guarded_is_there(guarded: Guarded) -> None:
    inside = nodes(PACKAGE / guarded.owner)
    defined = {node.name for node in inside if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {
        name.id
        for node in inside
        if isinstance(node, ast.Assign)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    assert guarded.name in defined, f"{guarded.owner} defines no {guarded.name}"


def test_who_ends_a_guest_has_told_the_cluster_of_its_node() -> None:
    ends = {"destroy", "reset", "shutdown"}
    found = {
        use.place
        for use in uses()
        if (use.name in ends and use.on.endswith("hypervisor") and not use.place.startswith("guests/"))
        or (use.name == "remove_domain" and use.on == "guest")
    }
    assert found == TELLERS.keys() | NOT_JOINED
    telling = {use.place for use in uses() if use.name == "leave_cluster" and use.is_call}
    assert set(TELLERS.values()) <= telling


def test_every_command_says_whether_it_leaves_an_event() -> None:
    """tests/e2e/operate/test_events_of_commands.py runs them all: a changing one leaves its event, others none."""
    unknown = COMMANDS.keys() - CHANGING - READING.keys()
    assert not unknown, f"add a step or a line to tests/e2e/operate/command_events.py for {sorted(unknown)}"
    assert (CHANGING | READING.keys()) <= COMMANDS.keys()
