# SPDX-License-Identifier: Apache-2.0
"""From this version to a made-up next release with a live store: hosts with running VMs, a queue, a reservation.

`make test-release` runs it. The tests build on one another, in their order.
"""

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.e2e.operator import Done, Operator
from tests.next_version import SCHEMA, VERSION
from tests.release.next_release import SIZE, build_next_release, fill
from vgpuctl.store.schema import SCHEMA_VERSION, VERSION_TABLE

pytestmark = pytest.mark.timeout(900)


class NextRelease(Operator):
    """The operator with the next release, in processes that import nothing of this tree."""

    @property
    def command(self) -> list[str]:
        """The program and its first arguments."""
        return [super().command[0], "-P", "-m", "vgpuctl"]

    def run(self, *arguments: str, program: object = (), timeout_s: float = 400) -> Done:
        """Run a command to its end."""
        process = self.start(*arguments, program=self.command[1:], cwd=self.home)
        out, err = process.communicate(timeout=timeout_s)
        return Done(process.returncode, out, err)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The operator with this version, whose hosts run and whose store is filled and backed up."""
    home = tmp_path_factory.mktemp("home")
    lab = home / "lab"
    made = Operator(
        home, lab / "simulated" / "inventory.yml", f"sqlite:///{home}/store.db", {"VGPUCTL_LAB_FOLDER": str(lab)}
    )
    made.does("lab", "up", "--simulated", "2")
    try:
        fill(made)
        assert f"schema {SCHEMA_VERSION}" in made.does("backup-store", str(home / "backup")).err
        yield made
    finally:
        made.does("lab", "down", "--purge")


@pytest.fixture(scope="module")
def upgraded(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> NextRelease:
    """The same operator with the next release."""
    installed = build_next_release(tmp_path_factory.mktemp("next"))
    return NextRelease(
        operator.home, operator.inventory, operator.database, {**operator.variables, "PYTHONPATH": str(installed)}
    )


def _schema(operator: Operator) -> str:
    with sqlite3.connect(operator.home / "store.db") as opened:
        return str(opened.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()[0])


def _states(operator: Operator) -> dict[str, str]:
    return {one["vm"]["request"]["name"]: one["vm"]["state"] for one in operator.json("list-vms", "-A") if one["vm"]}


def test_the_first_command_upgrades_the_store_and_loses_nothing(operator: Operator, upgraded: NextRelease) -> None:
    before = _states(operator)
    assert before == {"web-1": "running", "web-2": "running", "idle": "stopped"}
    assert (_schema(operator), VERSION in upgraded.does("--version").out) == (SCHEMA_VERSION, True)
    assert _states(upgraded) == before
    assert _schema(operator) == SCHEMA
    (waiting,) = upgraded.json("list-queue")["queue"]
    assert waiting["entry"]["request"]["name"] == "nightly"
    assert "batch" in upgraded.does("list-reservations").out
    assert "10.20.0.0/24" in upgraded.does("list-networks", "--tenant", "acme").out
    assert "memory" in upgraded.does("list-hosts").out
    again = ("create-network", "back", "--tenant", "acme", "--cidr", "10.20.0.0/24", "--host", "sim-001")
    assert "no change" in upgraded.does(*again).err


def test_an_old_client_is_refused_and_changes_nothing(operator: Operator, upgraded: NextRelease) -> None:
    for arguments in (["list-vms"], ["create-vm", "new", "--tenant", "acme", "--gpu", "A40-8Q", *SIZE]):
        refused = operator.run(*arguments)
        assert refused.code == 6, refused.err
        assert f"has schema version {SCHEMA}, this vgpuctl knows up to {SCHEMA_VERSION}" in refused.err
    assert "new" not in _states(upgraded)


def test_the_controller_takes_over_and_serves_the_queue(upgraded: NextRelease) -> None:
    assert "nothing to repair" in upgraded.does("repair", "--dry-run").err
    with upgraded.start("controller", program=upgraded.command[1:], cwd=upgraded.home) as process:
        try:
            upgraded.does("uncordon-host", "sim-002")
            upgraded.does("delete-vm", "idle", "--tenant", "umbrella", "--yes", "--timeout", "0")
            upgraded.does("delete-vm", "web-2", "--tenant", "acme", "--yes", "--timeout", "0")
            give_up = time.monotonic() + 120
            while _states(upgraded).get("nightly") != "running":
                assert time.monotonic() < give_up, upgraded.does("list-queue").out
                time.sleep(2)
        finally:
            process.terminate()
            out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert _states(upgraded) == {"web-1": "running", "nightly": "running"}


def test_the_backup_goes_back_to_the_old_version(operator: Operator, upgraded: NextRelease) -> None:
    """The way back (docs/install.md): the old version restores its backup, and is told what happened since."""
    home = operator.home
    refused = operator.run("restore-store", str(home / "backup"), "--replace", "--yes")
    assert refused.code == 6 and "schema version" in refused.err
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        if (home / name).exists():
            (home / name).rename(home / f"{name}.upgraded")
    operator.does("restore-store", str(home / "backup"))
    assert _schema(operator) == SCHEMA_VERSION
    told = operator.run("reconcile-store").out
    assert "unknown-vm" in told or "missing-vm" in told
    assert operator.run("stop-vm", "web-1", "--tenant", "acme").code != 0


def test_a_backup_of_the_old_version_is_upgraded_as_it_is_restored(upgraded: NextRelease) -> None:
    elsewhere = replace(upgraded, database=f"sqlite:///{upgraded.home}/elsewhere.db")
    elsewhere.does("restore-store", str(upgraded.home / "backup"))
    assert _states(elsewhere) == {"web-1": "running", "web-2": "running", "idle": "stopped"}
