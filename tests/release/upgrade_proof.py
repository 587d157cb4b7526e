# SPDX-License-Identifier: Apache-2.0
"""From 0.1.0 to this version with a live store: hosts with running VMs, a queue, a reservation.

`make test-release` runs it: it builds 0.1.0 from the history. The tests build on one another, in their order.
"""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from tests.release.first_release import SCHEMA, SIZE, FirstRelease
from vgpuctl.store.schema import SCHEMA_VERSION, VERSION_TABLE

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's home."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def operator(home: Path) -> Operator:
    """The operator with this version."""
    return Operator(home, home / "lab" / "simulated" / "inventory.yml", f"sqlite:///{home}/store.db")


@pytest.fixture(scope="module")
def old(operator: Operator, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirstRelease]:
    """0.1.0, whose hosts run and whose store is filled and backed up."""
    release = FirstRelease(tmp_path_factory.mktemp("first"))
    with release.hosts(home, operator.database):
        release.fill(home, operator.database)
        yield release


def _schema(home: Path) -> str:
    with sqlite3.connect(home / "store.db") as opened:
        return str(opened.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()[0])


def _states(operator: Operator) -> dict[str, str]:
    return {one["vm"]["request"]["name"]: one["vm"]["state"] for one in operator.json("list-vms", "-A") if one["vm"]}


def test_the_first_command_upgrades_the_store_and_loses_nothing(
    old: FirstRelease, operator: Operator, home: Path
) -> None:
    kept = old.run(home, operator.database, "backup-store", str(home / "backup"))
    assert (kept.returncode, "schema 0023" in kept.stderr) == (0, True), kept.stderr
    before = old.does(home, operator.database, "list-vms", "--json")
    assert (_schema(home), before.count('"running"') >= 2) == (SCHEMA, True)
    assert _states(operator) == {"web-1": "running", "web-2": "running", "idle": "stopped"}
    assert _schema(home) == SCHEMA_VERSION
    (waiting,) = operator.json("list-queue")["queue"]
    assert waiting["entry"]["request"]["name"] == "nightly"
    assert "batch" in operator.does("list-reservations").out
    assert "10.20.0.0/24" in operator.does("list-networks", "--tenant", "acme").out
    assert "memory" in operator.does("list-hosts").out
    assert (
        "no change"
        in operator.does(
            "create-network", "back", "--tenant", "acme", "--cidr", "10.20.0.0/24", "--host", "sim-001"
        ).err
    )


def test_an_old_client_is_refused_and_changes_nothing(old: FirstRelease, operator: Operator, home: Path) -> None:
    for arguments in (["list-vms"], ["create-vm", "new", "--tenant", "acme", "--gpu", "A40-8Q", *SIZE]):
        refused = old.run(home, operator.database, *arguments)
        assert refused.returncode == 6, refused.stderr
        assert f"has schema version {SCHEMA_VERSION}, this vgpuctl knows up to {SCHEMA}" in refused.stderr
    assert "new" not in _states(operator)


def test_the_controller_takes_over_and_serves_the_queue(old: FirstRelease, operator: Operator, home: Path) -> None:
    assert "nothing to repair" in operator.does("repair", "--dry-run").err
    with operator.start("controller") as process:
        try:
            operator.does("uncordon-host", "sim-002")
            operator.does("delete-vm", "idle", "--tenant", "umbrella", "--yes", "--timeout", "0")
            operator.does("delete-vm", "web-2", "--tenant", "acme", "--yes", "--timeout", "0")
            give_up = time.monotonic() + 120
            while _states(operator).get("nightly") != "running":
                assert time.monotonic() < give_up, operator.does("list-queue").out
                time.sleep(2)
        finally:
            process.terminate()
            out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert _states(operator) == {"web-1": "running", "nightly": "running"}


def test_the_backup_goes_back_to_the_old_version(old: FirstRelease, operator: Operator, home: Path) -> None:
    """The way back (docs/install.md): the old version restores its backup, and is told what happened since."""
    refused = old.run(home, operator.database, "restore-store", str(home / "backup"), "--replace", "--yes")
    assert refused.returncode == 6 and "schema version" in refused.stderr
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        if (home / name).exists():
            (home / name).rename(home / f"{name}.upgraded")
    old.does(home, operator.database, "restore-store", str(home / "backup"))
    assert _schema(home) == SCHEMA
    told = old.run(home, operator.database, "reconcile-store").stdout
    assert "unknown-vm" in told or "missing-vm" in told
    assert old.run(home, operator.database, "stop-vm", "web-1", "--tenant", "acme").returncode != 0
