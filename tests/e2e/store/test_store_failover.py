# SPDX-License-Identifier: Apache-2.0
"""The PostgreSQL primary dies in the middle of a command and its standby is promoted: nothing leaks."""

import time
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness
from tests.postgres_fixture import LocalPostgres, LocalStandby, find_programs
from vgpuctl.store.store import _RETRY_S

SIZE = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
CREATE = ("create-vm", "web-1", "--gpu", "A40-8Q", "--host", "sim-001", "--disk", "8MiB", *SIZE)
DELETE = ("delete-vm", "web-1", "--tenant", "acme", "--yes", "--timeout", "0")


@pytest.fixture
def servers() -> Iterator[tuple[LocalPostgres, LocalStandby]]:
    programs = find_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed: apt-get install postgresql")
    with LocalPostgres(programs) as primary:
        primary.execute("CREATE DATABASE fleet")
        with LocalStandby(programs, primary) as standby:
            yield primary, standby


def _fail_over_during(operator: Operator, servers: tuple[LocalPostgres, LocalStandby], moment: str, *words: str) -> int:
    """Run a command, and lose the primary when a query finds rows; the standby is promoted once it has been missed."""
    primary, standby = servers
    with psycopg.connect(primary.url("fleet"), autocommit=True) as watching:
        run = operator.start(*words, "--json")
        while run.poll() is None and not watching.execute(moment.encode()).fetchall():
            time.sleep(0.01)
    primary.crash()
    time.sleep(2 * _RETRY_S)
    standby.promote()
    _out, said = run.communicate(timeout=120)
    assert "Traceback" not in said, said
    if run.returncode:
        assert '"reference": "store-unusable"' in said, said
        assert "was not committed" in said, said
    return run.returncode


MOMENTS = {
    "it has begun": "SELECT 1 FROM operations",
    "its share is reserved": "SELECT 1 FROM leases",
    "its share is built": "SELECT 1 FROM leases WHERE state = 'built'",
    "its disk is recorded": "SELECT 1 FROM volumes",
    "its disk is made": "SELECT 1 FROM volumes WHERE state = 'made'",
    "it runs": "SELECT 1 FROM vms WHERE state = 'running'",
}


_BETWEEN = pytest.mark.long(
    "tests/e2e/store/test_store_failover.py::test_a_primary_that_dies_in_the_middle_of_a_command_leaves_nothing_behind"
)


@pytest.mark.parametrize(
    "moment",
    [pytest.param(MOMENTS[name], id=name, marks=() if name == "its share is built" else _BETWEEN) for name in MOMENTS],
)
def test_a_primary_that_dies_in_the_middle_of_a_command_leaves_nothing_behind(
    fleet_operator: Operator,
    fleet_witness: FleetWitness,
    servers: tuple[LocalPostgres, LocalStandby],
    moment: str,
) -> None:
    primary, standby = servers
    url = primary.url("fleet").replace(f":{primary.port}/", f":{primary.port},127.0.0.1:{standby.port}/")
    operator = replace(
        fleet_operator, database=f"{url}?target_session_attrs=read-write", variables={"PYTHONWARNINGS": "default"}
    )
    before = fleet_witness.state()
    operator.does("create-tenant", "acme")
    code = _fail_over_during(operator, servers, moment, *CREATE)
    operator.does("repair")
    assert operator.json("repair") == []
    vms = operator.json("list-vms")
    assert code != 0 or len(vms) == 1
    if not vms:
        assert fleet_witness.state() == before, "what could not be created is gone"
    operator.does(*CREATE)
    assert [vm["vm"]["state"] for vm in operator.json("list-vms")] == ["running"]
    operator.does(*DELETE)
    assert fleet_witness.state() == before
    assert operator.json("gc", "--kind", "vgpu", "--kind", "domain", "--dry-run") == []
