# SPDX-License-Identifier: Apache-2.0
"""kill -9 after every side effect of create-vm and delete-vm, then `repair`: host, store and libvirt agree again.

On simulated hosts after every one, with a file as the store and with a real PostgreSQL; on the emulated host with a
real kernel and a real libvirt after the ones that change the host most.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness, Witness
from tests.postgres_fixture import LocalPostgres

KILLED_RUN = ("-m", "tests.e2e.killed_run")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--hostname", "web-1")
DELETE = ("delete-vm", "web-1", "--tenant", "acme", "--yes", "--timeout", "0")
CREATE_SIMULATED = {
    "vf-profile": ("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", "--host", "sim-001", "--disk", "64MiB"),
    "mdev": ("create-vm", "web-1", "--tenant", "acme", "--gpu", "2*T4-2Q", "--host", "sim-003", "--disk", "64MiB"),
}
CREATE = ("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", "--gpu", "T4-2Q",
          "--disk", "4MiB", "--base-image", "idle", *SIZE)  # fmt: skip


class Looks(Protocol):
    """A witness of one host or of many."""

    def state(self) -> list[str]:
        """Equal before and after means that nothing leaked."""


@pytest.fixture(params=["vf-profile on sqlite", "mdev on postgresql"])
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


def _count_side_effects(operator: Operator, arguments: Sequence[str]) -> int:
    done = operator.run("0", *arguments, program=KILLED_RUN)
    assert done.code == 0, done.err
    return int(done.err.splitlines()[-1])


def _kill_after(operator: Operator, number: int | str, arguments: Sequence[str]) -> None:
    done = operator.run(str(number), *arguments, program=KILLED_RUN)
    assert done.code == -9, f"not killed at side effect {number}: {done.code}\n{done.err}"


def _create_killed(
    operator: Operator, witness: Looks, before: list[str], number: int | str, create: Sequence[str]
) -> bool:
    """Kill create-vm after a side effect and repair. Returns True where the VM was finished, not rolled back."""
    _kill_after(operator, number, create)
    operator.does("repair")
    if isinstance(number, str) or number % 4 == 0:
        assert operator.json("repair") == [], f"a second repair after side effect {number} of create-vm found more"
    vms = operator.json("list-vms")
    if vms:
        assert [vm["vm"]["state"] for vm in vms] == ["running"], f"after side effect {number} of create-vm"
        assert {lease["state"] for lease in vms[0]["leases"]} == {"running"}
        operator.does(*DELETE)
    assert witness.state() == before, f"after side effect {number} of create-vm something leaked"
    return bool(vms)


def _delete_killed(
    operator: Operator, witness: Looks, before: list[str], number: int | str, create: Sequence[str]
) -> bool:
    """Kill delete-vm after a side effect and repair. Returns True where the VM was deleted, not kept."""
    operator.does(*create)
    assert witness.state() != before
    _kill_after(operator, number, DELETE)
    operator.does("repair")
    vms = operator.json("list-vms")
    if vms:
        operator.does(*DELETE)
    assert operator.json("list-vms") == [], f"after side effect {number} of delete-vm"
    assert witness.state() == before, f"after side effect {number} of delete-vm something leaked"
    return not vms


@pytest.mark.timeout(1500)
def test_a_run_killed_after_any_side_effect_is_repaired(
    fleet_on_store: tuple[str, Operator], fleet_witness: FleetWitness
) -> None:
    kind, operator = fleet_on_store
    create = (*CREATE_SIMULATED[kind], *SIZE)
    operator.does("create-tenant", "acme")
    operator.does("list-gpus", "--refresh")
    before = fleet_witness.state()
    creations = _count_side_effects(operator, create)
    deletions = _count_side_effects(operator, DELETE)
    assert fleet_witness.state() == before
    assert creations >= 10
    assert deletions >= 6
    for kill, count in ((_create_killed, creations), (_delete_killed, deletions)):
        finished = [kill(operator, fleet_witness, before, number, create) for number in range(1, count + 1)]
        assert (finished[0], finished[-1]) == (False, True), "both ways out are taken"
        assert finished == sorted(finished), "what was finished once is not rolled back after a later kill"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["mdev"])
def test_an_impatient_operator_loses_nothing(
    kind: str, fleet_operator: Operator, fleet_witness: FleetWitness, tmp_path: Path
) -> None:
    """SIGINT after a side effect, and two more signals after each that follows: the rollback goes on to its end."""
    operator = replace(fleet_operator, database=f"sqlite:///{tmp_path}/store.db")
    create = (*CREATE_SIMULATED[kind], *SIZE)
    operator.does("create-tenant", "acme")
    operator.does("list-gpus", "--refresh")
    before = fleet_witness.state()
    last = _count_side_effects(operator, create)
    operator.does(*DELETE)
    rolled_back = 0
    for number in range(1, last + 1):
        done = operator.run(f"int:{number}", *create, program=KILLED_RUN)
        assert done.code == 130, f"after side effect {number}: {done.err}"
        rolled_back += "rolled back completely, nothing is left" in done.err
        if operator.json("list-vms"):
            assert number >= last - 1, f"after side effect {number} of {last} the VM is there: {done.err}"
            operator.does(*DELETE)
        assert operator.json("repair") == [], f"after side effect {number}: {done.err}"
        assert fleet_witness.state() == before, f"after side effect {number} something leaked"
        if "rolling back: GPU shares" in done.err:
            assert "rolling back goes on and cannot be interrupted" in done.err
    assert rolled_back > last // 2


@pytest.fixture(scope="module")
def host_before(operator: Operator, witness: Witness) -> list[str]:
    operator.does("create-tenant", "acme")
    return witness.state()


@pytest.mark.kernel_lab
@pytest.mark.parametrize("after", ["create_overlay", "apply", "start"])
def test_a_killed_creation_is_repaired_on_a_real_kernel(
    after: str, operator: Operator, witness: Witness, host_before: list[str]
) -> None:
    _create_killed(operator, witness, host_before, after, CREATE)


@pytest.mark.kernel_lab
def test_ctrl_c_in_the_middle_takes_everything_back_and_a_killed_deletion_is_finished(
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
    assert operator.json("list-vms") == []
    assert operator.json("repair") == []
    _delete_killed(operator, witness, host_before, "undefine", CREATE)
