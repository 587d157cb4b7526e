# SPDX-License-Identifier: Apache-2.0
"""kill -9 after every side effect of create-vm and delete-vm, then `repair`: host, store and libvirt agree again.

On simulated hosts after every kind of one, with a file as the store and, after some, with a real PostgreSQL; on the
emulated host with a real kernel and a real libvirt after the ones that change the host most.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from tests.bench.day_checks import Seen, look
from tests.e2e.kills import KILLED_RUN, kill_after, kill_points, side_effects
from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness, Witness
from tests.postgres_fixture import LocalPostgres
from vgpuctl.store.store import open_store

FLEET = (2, "a40,t4")
"""A host with an A40, and one with a T4."""
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--hostname", "web-1")
DELETE = ("delete-vm", "web-1", "--tenant", "acme", "--yes", "--timeout", "0")
CREATE_SIMULATED = {
    "vf-profile": ("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", "--host", "sim-001", "--disk", "64MiB"),
    "mdev": ("create-vm", "web-1", "--tenant", "acme", "--gpu", "2*T4-2Q", "--host", "sim-002", "--disk", "64MiB"),
}
CREATE = ("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", "--gpu", "T4-2Q",
          "--disk", "4MiB", "--base-image", "idle", *SIZE)  # fmt: skip


class Looks(Protocol):
    """A witness of one host or of many."""

    def state(self) -> list[str]:
        """Equal before and after means that nothing leaked."""


_ON_POSTGRESQL = pytest.mark.long(
    "tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired",
    "tests/e2e/operate/test_interrupted.py::test_an_impatient_operator_loses_nothing",
)


@pytest.fixture(params=["vf-profile on sqlite", pytest.param("mdev on postgresql", marks=_ON_POSTGRESQL)])
def fleet_on_store(
    request: pytest.FixtureRequest, fleet_operator: Operator, tmp_path: Path
) -> Iterator[tuple[str, Operator]]:
    """A sharing kind, and the simulated fleet with a new store; each kind of store with another kind of sharing."""
    kind, _, store = request.param.partition(" on ")
    if store == "sqlite":
        yield kind, replace(fleet_operator, database=f"sqlite:///{tmp_path}/store.db")
        return
    postgres: LocalPostgres = request.getfixturevalue("postgres")
    with postgres.create_database() as database:
        yield kind, replace(fleet_operator, database=database)


def _seen(operator: Operator) -> Seen:
    with open_store(operator.database) as store:
        return look(store)


def _is_whole(operator: Operator, text: str) -> bool:
    """True if the VM exists and runs with its shares. No run is left open in either case."""
    seen = _seen(operator)
    assert seen.open_operations == 0, text
    assert {str(vm.state) for vm in seen.vms} | {str(lease.state) for lease in seen.leases} <= {"running"}, text
    assert bool(seen.vms) == bool(seen.leases), text
    return bool(seen.vms)


def _create_killed(operator: Operator, witness: Looks, before: list[str], point: int | str, *create: str) -> bool:
    """Kill create-vm after a side effect and repair. Returns True where the VM was finished, not rolled back."""
    text = f"after side effect {point} of create-vm"
    kill_after(operator, point, *create)
    operator.does("repair")
    is_finished = _is_whole(operator, text)
    if is_finished:
        operator.does(*DELETE)
    assert witness.state() == before, f"{text} something leaked"
    return is_finished


def _delete_killed(operator: Operator, witness: Looks, before: list[str], point: int | str, *create: str) -> bool:
    """Kill delete-vm after a side effect and repair. Returns True where the VM was deleted, not kept.

    The VM is made unless an earlier kill has left it.
    """
    text = f"after side effect {point} of delete-vm"
    if not _seen(operator).vms:
        operator.does(*create)
    kill_after(operator, point, *DELETE)
    operator.does("repair")
    is_kept = _is_whole(operator, text)
    assert (witness.state() == before) != is_kept, f"{text} something leaked"
    return not is_kept


@pytest.mark.timeout(1500)
def test_a_run_killed_after_any_side_effect_is_repaired(
    fleet_on_store: tuple[str, Operator], fleet_witness: FleetWitness
) -> None:
    kind, operator = fleet_on_store
    create = (*CREATE_SIMULATED[kind], *SIZE)
    operator.does("create-tenant", "acme")
    operator.does("list-gpus", "--refresh")
    before = fleet_witness.state()
    creations = side_effects(operator, *create)
    deletions = side_effects(operator, *DELETE)
    assert fleet_witness.state() == before
    assert {"create_disk", "create_image", "apply", "define", "start"} <= set(creations)
    assert {"destroy", "undefine", "delete_volume", "apply"} <= set(deletions)
    for kill, effects in ((_create_killed, creations), (_delete_killed, deletions)):
        finished = [kill(operator, fleet_witness, before, point, *create) for point in kill_points(effects, most=5)]
        assert (finished[0], finished[-1]) == (False, True), "both ways out are taken"
        assert finished == sorted(finished), "what was finished once is not rolled back after a later kill"
    assert operator.json("repair") == [], "no repair left anything for a second one"


@pytest.mark.timeout(900)
def test_an_impatient_operator_loses_nothing(
    fleet_operator: Operator, fleet_witness: FleetWitness, tmp_path: Path
) -> None:
    """SIGINT after a side effect, and two more signals after each that follows: the rollback goes on to its end."""
    operator = replace(fleet_operator, database=f"sqlite:///{tmp_path}/store.db")
    create = (*CREATE_SIMULATED["mdev"], *SIZE)
    operator.does("create-tenant", "acme")
    operator.does("list-gpus", "--refresh")
    before = fleet_witness.state()
    effects = side_effects(operator, *create)
    operator.does(*DELETE)
    points, rolled_back = kill_points(effects), 0
    for point in points:
        text = f"after side effect {point} of {len(effects)}"
        done = operator.run(f"int:{point}", *create, program=KILLED_RUN)
        assert done.code == 130, f"{text}: {done.err}"
        rolled_back += "rolled back completely, nothing is left" in done.err
        if _is_whole(operator, text):
            assert point >= len(effects) - 1, f"{text} the VM is there: {done.err}"
            operator.does(*DELETE)
        assert fleet_witness.state() == before, f"{text} something leaked"
        if "rolling back: GPU shares" in done.err:
            assert "ends first and cannot be interrupted" in done.err
    assert rolled_back > len(points) // 2
    assert operator.json("repair") == []


@pytest.fixture(scope="module")
def host_before(operator: Operator, witness: Witness) -> list[str]:
    operator.does("create-tenant", "acme")
    return witness.state()


@pytest.mark.kernel_lab
@pytest.mark.long("tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired")
def test_what_is_killed_is_repaired_on_a_real_kernel(
    operator: Operator, witness: Witness, host_before: list[str]
) -> None:
    for point in ("create_overlay", "apply"):
        assert not _create_killed(operator, witness, host_before, point, *CREATE)
    for point, command in (("start", CREATE), ("undefine", DELETE)):
        kill_after(operator, point, *command)
        operator.does("repair")
        assert _is_whole(operator, point) == (command is CREATE)
    assert witness.state() == host_before
    assert operator.json("repair") == []


@pytest.mark.kernel_lab
@pytest.mark.long("tests/e2e/operate/test_interrupted.py::test_an_impatient_operator_loses_nothing")
def test_ctrl_c_in_the_middle_takes_everything_back_on_a_real_kernel(
    operator: Operator, witness: Witness, host_before: list[str]
) -> None:
    with operator.start(*CREATE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "shares built" in line:
                process.send_signal(2)
                break
        _out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "rolling back" in err
    assert "Traceback" not in err
    assert witness.state() == host_before
    assert not _is_whole(operator, err)
