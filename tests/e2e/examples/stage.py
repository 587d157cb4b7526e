# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts with the names that examples have, and a stage for each test on them.

A test file that imports `stage` has one fleet; each of its tests has a copy of one prepared store.
"""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.examples.scene import Stage
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import simulated_fleet
from vgpuctl_lab.simulated.layout import simulated_folder

SMALL = "--memory 96MiB --vcpus 1 --network none --disk 64MiB"
TENANTS = ("acme", "umbrella")
_LAYOUT = "vgpu: {version: 1, gpus: [{match: all, kind: vgpu}]}\n"
_WITH_OBJECTS = " UNION ".join(f"SELECT tenant FROM {table}" for table in ("vms", "volumes", "networks", "kept_vms"))


@dataclass(frozen=True)
class NamedFleet:
    """Hosts named gpu1 and so on, and an operator whose store knows their GPUs and two tenants."""

    folder: lab.LabFolder
    operator: Operator


@pytest.fixture(scope="module")
def named_fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamedFleet]:
    """The hosts that a test file's HOSTS (their number) and CARD say."""
    home: Path = tmp_path_factory.mktemp("examples")
    hosts: int = getattr(request.module, "HOSTS", 2)
    with simulated_fleet(home, hosts, getattr(request.module, "CARD", "a40")) as folder:
        inventory = home / "inventory"
        (inventory / "group_vars").mkdir(parents=True)
        text = simulated_folder(folder).inventory.read_text().replace("simulated_hosts", "gpu_hosts")
        for number in range(1, hosts + 1):
            text = text.replace(f"sim-{number:03}", f"gpu{number}")
        (inventory / "hosts.yml").write_text(text)
        (inventory / "group_vars" / "gpu_hosts.yml").write_text(_LAYOUT)
        operator = Operator(home, inventory, f"sqlite:///{home}/prepared.db")
        for tenant in TENANTS:
            operator.does("create-tenant", tenant)
        operator.does("list-gpus", "--refresh")
        yield NamedFleet(folder, operator)


@pytest.fixture
def variables() -> dict[str, str]:
    """Environment variables that a test file adds for its commands."""
    return {}


@pytest.fixture
def stage(named_fleet: NamedFleet, variables: dict[str, str], tmp_path: Path) -> Iterator[Stage]:
    """A stage with copies of inventory and prepared store; at its end its tenants go with what they have on hosts."""
    prepared = named_fleet.operator
    shutil.copy(prepared.home / "prepared.db", tmp_path / "store.db")
    shutil.copytree(prepared.inventory, tmp_path / "inventory")
    made = replace(
        prepared,
        home=tmp_path,
        inventory=tmp_path / "inventory",
        database=f"sqlite:///{tmp_path}/store.db",
        variables={name: value.format(folder=tmp_path) for name, value in variables.items()},
    )
    yield Stage(made, tmp_path, named_fleet.folder)
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as store:
        tenants = [str(row[0]) for row in store.execute(_WITH_OBJECTS)]
    for tenant in tenants:
        made.does("offboard-tenant", tenant, "--yes", "--delete-disks", "--timeout", "0")
