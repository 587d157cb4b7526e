# SPDX-License-Identifier: Apache-2.0
"""Commands that run for long end when another store is in the place of theirs, or a newer vgpuctl has upgraded it."""

import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import SIZE
from vgpuctl.store.schema import SCHEMA_VERSION, VERSION_TABLE
from vgpuctl.usecases.operate.division import BEAT_S

FLEET = (1, "a40")
HERE = ("--listen", "127.0.0.1:0")
LONG = {
    "controller": ("--interval", "3600"),
    "serve exporter": ("--store-only", *HERE),
    "serve web": ("--cached", *HERE),
    "serve autoscaler": ("--tenant", "acme", *HERE),
}
BEGUN = re.compile(r"watching the hosts|serving ")


@contextmanager
def _begun(operator: Operator, name: str) -> Iterator["subprocess.Popen[str]"]:
    """A command that has said that it serves."""
    process = operator.start(*name.split(), *LONG[name])
    try:
        assert process.stderr is not None
        assert any(BEGUN.match(line) for line in process.stderr), f"{name} ended"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def operator(fleet_operator: Operator, tmp_path: Path) -> Operator:
    """An operator with a store of the test's own."""
    made = replace(fleet_operator, database=f"sqlite:///{tmp_path}/store.db")
    made.does("create-tenant", "acme")
    made.does("create-node-pool", "gpu", "--tenant", "acme", "--role", "k3s", "--max", "3", *SIZE)
    return made


def test_what_runs_for_long_ends_when_a_backup_is_restored_in_the_place_of_its_store(
    operator: Operator, tmp_path: Path
) -> None:
    """As docs/backup.md tells to repair a damaged store: move it away, restore a backup."""
    operator.does("create-vm", "web", "--tenant", "acme", *SIZE, "--network", "none")
    operator.does("backup-store", str(tmp_path / "backup"))
    with ExitStack() as ends:
        running = {name: ends.enter_context(_begun(operator, name)) for name in LONG}
        (tmp_path / "damaged").mkdir()
        (tmp_path / "store.db").rename(tmp_path / "damaged/store.db")
        left = operator.is_refused("restore-store", str(tmp_path / "backup"))
        assert (
            left["reference"] == "store-unusable" and "store.db-wal and store.db-shm of that store" in left["message"]
        )
        for file in tmp_path.glob("store.db-*"):
            file.rename(tmp_path / "damaged" / file.name)
        operator.does("restore-store", str(tmp_path / "backup"))
        for name, process in running.items():
            _, err = process.communicate(timeout=60 + 4 * BEAT_S)
            assert process.returncode == 6, f"{name}: {err}"
            what = "(is another file|is gone: its file was moved or deleted)"  # it may look before the restore
            assert re.search(f"the store {tmp_path}/store.db {what} since this process opened it", err), (name, err)
            assert "start this again" in err, name
        listed = operator.json("list-controllers")
        assert listed["restored"]["file"] == str(tmp_path / "backup")
        said = operator.does("list-controllers").err
        assert "controllers of the store that was there before are not known" in said, said
    assert [one["state"] for one in operator.json("list-vms")] == ["running"]


@pytest.mark.long(
    "tests/e2e/operate/test_newer_store.py::"
    "test_what_runs_for_long_ends_when_a_backup_is_restored_in_the_place_of_its_store",
    "tests/integration/store/test_store_identity.py::test_what_the_store_says_of_itself_is_compared",
)
def test_what_runs_for_long_ends_when_a_newer_vgpuctl_has_upgraded_the_store(operator: Operator) -> None:
    with ExitStack() as ends:
        running = {name: ends.enter_context(_begun(operator, name)) for name in LONG}
        with sqlite3.connect(operator.database.removeprefix("sqlite:///"), timeout=30) as store:
            store.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
        for name, process in running.items():
            _, err = process.communicate(timeout=60 + 4 * BEAT_S)
            assert process.returncode == 6, f"{name}: {err}"
            assert f"has schema version 9999, this vgpuctl knows up to {SCHEMA_VERSION}" in err, name
    once = operator.run("controller", "--once", "--json")
    assert (once.code, "store-too-new" in once.err) == (6, True), once.err
