# SPDX-License-Identifier: Apache-2.0
"""Node pools of the tenant acme on simulated hosts: what the test files that create them share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME
from tests.e2e.witness import FleetWitness

ONCE = ("controller", "--once", "--shutdown-timeout", "0")


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator, fleet_witness: FleetWitness) -> Iterator[None]:
    """Delete every pool and VM after a test; hosts and queue are as before it."""
    before = fleet_witness.state()
    yield
    for pool in operator.json("list-node-pools"):
        name = pool["pool"]["name"]
        operator.does("delete-node-pool", name, *ACME, "--yes", "--drained", "--timeout", "0")
    operator.delete_all_vms()
    assert fleet_witness.state() == before
    assert operator.json("list-queue")["queue"] == []


def nodes(operator: Operator, pool: str = "gpu") -> dict[str, str]:
    """The state of each node of a pool."""
    (found,) = operator.json("list-node-pools", pool, *ACME)
    return {one["node"]["name"]: one["state"] for one in found["nodes"]}


def vms(operator: Operator) -> dict[str, Any]:
    """The VMs of acme, by name."""
    return {one["vm"]["request"]["name"]: one["vm"] for one in operator.json("list-vms")}


def secret_file(folder: Path, name: str, content: str) -> str:
    """A file that only its owner reads. Returns its path."""
    path = folder / name
    path.write_text(content)
    path.chmod(0o600)
    return str(path)
