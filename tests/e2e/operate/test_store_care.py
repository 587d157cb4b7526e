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
