# SPDX-License-Identifier: Apache-2.0
"""kill -9 after every side effect of create-vm and delete-vm, then `repair`: host, store and libvirt agree again.

The store is a file in one run and a real PostgreSQL in the other.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.operator import Operator
from tests.e2e.witness import Witness
from tests.postgres_fixture import LocalPostgres

pytestmark = pytest.mark.kernel_lab

KILLED_RUN = (str(Path(__file__).parent / "killed_run.py"),)
CREATE = (
    "create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", "--gpu", "T4-2Q", "--memory", "96MiB", "--vcpus", "1",
    "--disk", "4MiB", "--base-image", "idle.img", "--hostname", "web-1", "--network", "none",
)  # fmt: skip
DELETE = ("delete-vm", "web-1", "--tenant", "acme", "--yes", "--timeout", "0")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared_operator(
    request: pytest.FixtureRequest, kernel_host: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    home: Path = tmp_path_factory.mktemp("operator")
    if request.param == "sqlite":
        yield Operator(home, Path(kernel_host.inventory), f"sqlite:///{home}/store.db")
        return
    postgres: LocalPostgres = request.getfixturevalue("postgres")
    with postgres.create_database() as database:
        yield Operator(home, Path(kernel_host.inventory), database)


def _count_side_effects(operator: Operator, arguments: tuple[str, ...]) -> int:
    done = operator.run("0", *arguments, program=KILLED_RUN)
    assert done.code == 0, done.err
    return int(done.err.splitlines()[-1])


def _kill_after(operator: Operator, number: int, arguments: tuple[str, ...]) -> None:
    done = operator.run(str(number), *arguments, program=KILLED_RUN)
    assert done.code == -9, f"not killed at side effect {number}: {done.code}\n{done.err}"


def test_a_run_killed_after_any_side_effect_is_repaired(shared_operator: Operator, witness: Witness) -> None:
    operator = shared_operator
    operator.does("create-tenant", "acme")
    operator.does("list-gpus", "--refresh")
    before = witness.state()

    creations = _count_side_effects(operator, CREATE)
    running = witness.state()
    deletions = _count_side_effects(operator, DELETE)
    assert witness.state() == before
    assert creations >= 10
    assert deletions >= 6

    for number in range(1, creations + 1):
        _kill_after(operator, number, CREATE)
        operator.does("repair")
        assert operator.json("repair") == [], f"a second repair after side effect {number} of create-vm found more"
        vms = operator.json("list-vms")
        if vms:
            assert [vm["vm"]["state"] for vm in vms] == ["running"], f"after side effect {number} of create-vm"
            assert len(witness.vgpus()) + len(witness.mdevs()) == 2
            operator.does(*DELETE)
        assert witness.state() == before, f"after side effect {number} of create-vm something leaked"

    for number in range(1, deletions + 1):
        operator.does(*CREATE)
        assert len(witness.state()) == len(running)
        _kill_after(operator, number, DELETE)
        operator.does("repair")
        if operator.json("list-vms"):
            operator.does(*DELETE)
        assert operator.json("list-vms") == [], f"after side effect {number} of delete-vm"
        assert witness.state() == before, f"after side effect {number} of delete-vm something leaked"


def test_ctrl_c_in_the_middle_takes_everything_back(shared_operator: Operator, witness: Witness) -> None:
    operator = shared_operator
    before = witness.state()
    with operator.start(*CREATE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "slices built" in line:
                process.send_signal(2)
                break
        _out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "taking back" in err
    assert "Traceback" not in err
    assert witness.state() == before
    assert operator.json("list-vms") == []
    assert operator.json("repair") == []
