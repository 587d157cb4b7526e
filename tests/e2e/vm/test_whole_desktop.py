# SPDX-License-Identifier: Apache-2.0
"""One VM with everything that a guest has: its disks, UEFI variables, TPM, seat and parameters go where it goes."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.licence.licence_tokens import token_file
from tests.e2e.operator import Operator, forgetful
from tests.lab.simulated_fixtures import machine, simulated_fleet

ACME = ("--tenant", "acme")
OFF = ("--timeout", "0")
HOSTS = ("sim-001", "sim-002")
STATE = ("var/lib/libvirt/swtpm", "var/lib/libvirt/qemu/nvram")
POOL = ("create-licence-pool", "dls", "--edition", "vws", "--seats", "1")
CREATE = (
    "create-vm", "desk", *ACME, "--os", "win11", "--memory", "4GiB", "--vcpus", "2", "--network", "none",
    "--gpu", "A40-8Q", "--disk", "64MiB", "--vgpu-param", "frame_rate_limiter=0",
    "--data-disk", "files,size=32MiB,keep", "--data-disk", "scratch,size=32MiB",
)  # fmt: skip


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.LabFolder]:
    """Two equal hosts with one A40 each."""
    with simulated_fleet(tmp_path_factory.mktemp("desktop"), 2, "a40") as made:
        yield made


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator, fleet: lab.LabFolder) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does(*POOL, "--token", str(token_file(fleet_operator.home, "dls-1.example")))
    fleet_operator.does(*CREATE)
    return fleet_operator


def _shown(operator: Operator) -> dict[str, Any]:
    shown: dict[str, Any] = operator.json("show-vm", "desk", *ACME)
    return shown


def _volumes(operator: Operator) -> set[tuple[str, str, str]]:
    """Kind, name and host of every recorded volume."""
    with sqlite3.connect(operator.database.removeprefix("sqlite:///")) as store:
        return set(store.execute("SELECT kind, label, host FROM volumes").fetchall())


def _state(fleet: lab.LabFolder, host: str) -> int:
    """How many files of guests' TPMs and UEFI variables a host has."""
    root: Path = machine(fleet, host).root
    return sum(one.is_file() for folder in STATE for one in (root / folder).rglob("*"))


def _taken(operator: Operator) -> int:
    (pool,) = operator.json("list-licence-pools")
    return int(pool["held"])


def _is_whole(operator: Operator, fleet: lab.LabFolder) -> str:
    """Everything of the VM is on its host, and nothing of it elsewhere. Returns the host."""
    shown = _shown(operator)
    host = str(shown["vm"]["host"])
    assert _volumes(operator) == {
        ("disk", "", host), ("data", "files", host), ("data", "scratch", host), ("seed", "", host),
    }  # fmt: skip
    assert {one: _state(fleet, one) for one in HOSTS} == {one: 2 if one == host else 0 for one in HOSTS}
    assert shown["vm"]["request"]["vgpu_params"] == [["frame_rate_limiter", "0"]]
    assert operator.json("gc", "--dry-run") == []
    return host


def test_the_only_seat_is_taken_and_the_next_vm_waits(operator: Operator, fleet: lab.LabFolder) -> None:
    _is_whole(operator, fleet)
    assert _taken(operator) == 1
    refused = operator.is_refused(
        "create-vm", "other", *ACME, "--gpu", "A40-8Q", "--memory", "96MiB", "--network", "none"
    )
    assert refused["reference"] == "no-licence" and "desk" in " ".join(refused["context"])


_KEPT = pytest.mark.long("tests/e2e/vm/test_whole_desktop.py::test_it_stops_and_starts_with_everything")


@pytest.mark.parametrize("hold", [pytest.param("keep", marks=_KEPT), "release"])
def test_it_stops_and_starts_with_everything(operator: Operator, fleet: lab.LabFolder, hold: str) -> None:
    host = _is_whole(operator, fleet)
    operator.does("stop-vm", "desk", *ACME, "--hold", hold, *OFF)
    operator.does("start-vm", "desk", *ACME)
    assert _is_whole(operator, fleet) == host and _taken(operator) == 1


def test_a_drain_takes_everything_along(operator: Operator, fleet: lab.LabFolder) -> None:
    host = _is_whole(operator, fleet)
    operator.does("drain-host", host, "--reason", "fans", "--shutdown-timeout", "0", "--yes")
    try:
        assert _is_whole(operator, fleet) != host and _taken(operator) == 1
    finally:
        operator.does("uncordon-host", host)


def test_repair_leaves_a_whole_vm_alone_and_another_store_adopts_it(
    operator: Operator, fleet: lab.LabFolder, tmp_path: Path
) -> None:
    host = _is_whole(operator, fleet)
    operator.does("repair")
    assert _is_whole(operator, fleet) == host
    other = forgetful(operator, tmp_path, "acme")
    other.does(*POOL)
    other.does("adopt-host", host, "--vm", "acme.desk=acme/desk")
    assert _taken(other) == 1, "an adopted VM's licence counts"
    assert _is_whole(operator, fleet) == host


def test_offboarding_ends_all_of_it(operator: Operator, fleet: lab.LabFolder) -> None:
    _is_whole(operator, fleet)
    assert "files" in " ".join(operator.is_refused("offboard-tenant", "acme", "--yes", *OFF)["context"])
    operator.does("offboard-tenant", "acme", "--yes", *OFF, "--delete-disks")
    assert _volumes(operator) == set() and [_state(fleet, host) for host in HOSTS] == [0, 0]
    with sqlite3.connect(operator.database.removeprefix("sqlite:///")) as store:
        held = store.execute("SELECT count(*) FROM licence_seats WHERE released_at IS NULL").fetchone()
    assert held == (0,)
