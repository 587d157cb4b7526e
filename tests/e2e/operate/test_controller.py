# SPDX-License-Identifier: Apache-2.0
"""`vgpuctl controller`, on a simulated host with one A40."""

import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.kills import kill_after
from tests.e2e.operate.test_watched_hosts import QUICK, controllers, soon
from tests.e2e.operator import Operator
from tests.e2e.placement.test_queue import ONCE, WHOLE, nothing_is_left, operator, queued, states
from tests.e2e.quick_watch import FASTER
from tests.e2e.witness import FleetWitness
from tests.postgres_fixture import LocalPostgres
from vgpuctl.usecases.operate.watch_hosts import RECORD_S

__all__ = ["nothing_is_left", "operator"]
TEMPLATES = Path(__file__).parents[3] / "templates"


_ON_POSTGRESQL = pytest.mark.long("tests/e2e/operate/test_controller.py::test_a_controller_killed_midway_loses_nothing")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=_ON_POSTGRESQL)])
def test_a_controller_killed_midway_loses_nothing(
    kind: str, operator: Operator, fleet_witness: FleetWitness, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        _kill_midway(replace(operator, database=f"sqlite:///{tmp_path}/store.db"), fleet_witness, ("3",))
        return
    postgres: LocalPostgres = request.getfixturevalue("postgres")
    with postgres.create_database() as database:
        _kill_midway(replace(operator, database=database), fleet_witness, ("apply",))


def _kill_midway(operator: Operator, witness: FleetWitness, effects: tuple[str, ...]) -> None:
    """Kill a controller after these side effects; the next one still starts the VM."""
    operator.does("create-tenant", "acme")
    operator.does("list-gpus", "--refresh", "--limit", "sim-001")
    before = witness.state()
    for effect in effects:
        operator.does("create-vm", "blocker", *WHOLE)
        operator.does("create-vm", "waits", "--queue", *WHOLE)
        operator.does("delete-vm", "blocker", "--tenant", "acme", "--yes", "--timeout", "0")
        kill_after(operator, effect, *ONCE)
        operator.json(*ONCE)
        assert states(operator) == {"waits": "running"}, f"killed after side effect {effect}"
        assert witness.state() != before
        assert queued(operator) == []
        assert operator.json("repair") == []
        operator.does("delete-vm", "waits", "--tenant", "acme", "--yes", "--timeout", "0")
        assert witness.state() == before


def test_the_controller_runs_until_it_is_told_to_end(operator: Operator) -> None:
    operator.does("create-vm", "first", *WHOLE)
    operator.does("create-vm", "second", "--queue", *WHOLE)
    with operator.start("controller", "--interval", "0.2", "--limit", "sim-001") as process:
        operator.does("delete-vm", "first", "--tenant", "acme", "--yes", "--timeout", "0")
        give_up = time.monotonic() + 60
        while queued(operator):
            assert time.monotonic() < give_up, "the controller does not serve the queue"
        process.send_signal(signal.SIGTERM)
        _out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "acme/second: started" in err
    assert states(operator) == {"second": "running"}


def test_a_store_that_takes_no_change_any_more_is_told_once(operator: Operator, tmp_path: Path) -> None:
    alone = replace(operator, database=f"sqlite:///{tmp_path}/store.db")
    alone.does("create-tenant", "acme")
    with alone.start("controller", "--interval", "60", "--limit", "sim-001", program=QUICK) as process:
        soon(lambda: controllers(alone))
        alone.does("reconcile-store", "--begin")
        assert process.stderr is not None
        assert any("recorded later" in line for line in process.stderr), "the controller ended"
        time.sleep(10 * RECORD_S / FASTER)  # it tries ten times more
        process.send_signal(signal.SIGTERM)
        _out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "recorded later" not in err


def test_the_controller_does_not_begin_without_a_host(operator: Operator) -> None:
    refused = operator.is_refused("controller", "--limit", "nosuch")
    assert (refused["reference"], refused["exit_code"]) == ("inventory", 3)
