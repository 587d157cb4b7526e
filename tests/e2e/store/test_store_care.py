# SPDX-License-Identifier: Apache-2.0
"""An operator keeps the store: backups."""

import json
import tarfile
from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from tests.small_disk import small_disk


@pytest.fixture
def keeper(tmp_path: Path) -> Operator:
    """An operator without hosts, with a store."""
    made = Operator(tmp_path, tmp_path / "inventory.yml", f"sqlite:///{tmp_path}/store.db")
    made.does("create-tenant", "acme")
    return made


def test_a_backup_is_written_and_described(keeper: Operator, tmp_path: Path) -> None:
    said = keeper.json("backup-store", str(tmp_path / "one"))
    with tarfile.open(tmp_path / "one") as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None and json.loads(manifest.read()) == said["manifest"]
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600
    again = keeper.is_refused("backup-store", str(tmp_path / "one"))
    assert again["exit_code"] == 2 and "a backup never replaces a file" in again["hint"]


def test_a_backup_on_a_full_disk_is_refused_and_leaves_nothing(keeper: Operator, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk, disk.full():
        refused = keeper.is_refused("backup-store", str(disk.path / "one"))
        assert refused["reference"] == "file-not-written" and "the disk is full" in refused["message"]
        assert [path.name for path in disk.path.iterdir()] == ["ballast"]


def test_a_restore_asks_and_a_dry_run_writes_nothing(keeper: Operator, tmp_path: Path) -> None:
    keeper.does("backup-store", str(tmp_path / "one"))
    keeper.does("create-tenant", "later")
    assert "there is a store" in keeper.is_refused("restore-store", str(tmp_path / "one"))["message"]
    unanswered = keeper.run("restore-store", str(tmp_path / "one"), "--replace")
    assert unanswered.code == 2 and "Replace" in unanswered.err
    keeper.does("restore-store", str(tmp_path / "one"), "--replace", "--dry-run")
    assert len(keeper.json("list-tenants")) == 2
    done = keeper.json("restore-store", str(tmp_path / "one"), "--replace", "--yes")
    assert Path(done["kept"]).name.startswith("store.db.before-restore-")
    assert [one["tenant"] for one in keeper.json("list-tenants")] == ["acme"]
    refused = keeper.is_refused("set-quota", "acme", "vms=1")
    assert refused["reference"] == "store-not-reconciled" and "reconcile-store" in refused["hint"]


def test_a_restore_on_a_full_disk_changes_nothing(keeper: Operator, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        there = Operator(tmp_path, keeper.inventory, f"sqlite:///{disk.path}/store.db")
        there.does("create-tenant", "acme")
        there.does("backup-store", str(tmp_path / "one"))
        there.does("create-tenant", "later")
        with disk.full():
            refused = there.is_refused("restore-store", str(tmp_path / "one"), "--replace", "--yes")
            assert "the disk is full" in refused["message"], refused
        assert len(there.json("list-tenants")) == 2
