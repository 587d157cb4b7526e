# SPDX-License-Identifier: Apache-2.0
"""Backups: one state of a store in use, checked, whole or not at all."""

import json
import os
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_disk import small_disk
from vgpuctl.errors import FileNotWritten, StoreUnusable, UsageError
from vgpuctl.model.backup import KeyCopy, StoreKind
from vgpuctl.store.backup import CONTENT, read_backup, write_backup
from vgpuctl.store.schema import SCHEMA_VERSION
from vgpuctl.store.store import Store, open_store


def _rest(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder


def test_a_backup_says_what_it_is_and_only_its_owner_may_read_it(store: Store, key: Path, place: Path) -> None:
    manifest = write_backup(store, place / "first", with_key=False)
    assert (manifest.schema, manifest.taken_at, manifest.key) == (SCHEMA_VERSION, store.now(), KeyCopy.SEPARATE)
    assert manifest.store == store.name and "***" not in manifest.store_id
    assert (place / "first").stat().st_mode & 0o7777 == 0o600
    assert _rest(place) == ["first"]
    with tarfile.open(place / "first") as tar:
        assert tar.getnames() == ["manifest.json", CONTENT[store.kind]]
        said = tar.extractfile("manifest.json")
        assert said is not None and json.loads(said.read())["store_id"] == manifest.store_id
    second = write_backup(store, place / "second", with_key=True)
    assert second.store_id == manifest.store_id
    with read_backup(place / "second", place / "work") as unpacked:
        assert unpacked.key == key.read_bytes()
    with store.reading() as session:
        events = [one for one in session.events(10) if one.kind == "store-backed-up"]
    assert [one.after["file"] for one in events] == [str(place / "first"), str(place / "second")]
    assert events[0].evidence["sha256"] == manifest.sha256


def test_a_file_that_is_there_stays(store: Store, place: Path) -> None:
    (place / "there").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        write_backup(store, place / "there", with_key=False)
    assert (place / "there").read_text() == "mine"


def test_a_name_that_is_no_utf_8_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not UTF-8"):
        write_backup(store, tmp_path / "b\udcff", with_key=False)
    assert not [one for one in tmp_path.iterdir() if "backup" in one.name or one.name.startswith(".")]


def test_a_store_in_use_is_copied_as_one_state(store: Store, place: Path) -> None:
    """Each transaction adds two tenants; no backup has one of a pair."""
    ends = threading.Event()

    def write() -> None:
        number = 0
        while not ends.is_set():
            with store.transaction() as session:
                session.add_tenant(f"left-{number}")
                session.add_tenant(f"right-{number}")
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            write_backup(store, place / str(number), with_key=False)
    finally:
        ends.set()
        writer.join()
    if store.kind is StoreKind.SQLITE:
        counts = [_tenants(place / str(number), place) for number in range(3)]
        assert all(left == right for left, right in counts) and counts[0][0] < counts[2][0]


def _tenants(backup: Path, place: Path) -> tuple[int, int]:
    with (
        read_backup(backup, place / "work") as unpacked,
        open_store(f"sqlite:///{unpacked.content}?mode=ro") as copy,
        copy.reading() as session,
    ):
        names = [one.name for one in session.tenants()]
    return sum(one.startswith("left") for one in names), sum(one.startswith("right") for one in names)


@pytest.mark.parametrize("at", [600, -20_000])
def test_a_damaged_backup_is_refused(store: Store, place: Path, at: int) -> None:
    write_backup(store, place / "good", with_key=False)
    data = bytearray((place / "good").read_bytes())
    data[at] ^= 0xFF
    (place / "bad").write_bytes(data)
    with pytest.raises((UsageError, StoreUnusable)), read_backup(place / "bad", place / "work"):
        pass
    (place / "short").write_bytes(data[: len(data) // 2])
    with pytest.raises((UsageError, StoreUnusable)), read_backup(place / "short", place / "work"):
        pass
    assert _rest(place) == ["bad", "good", "short"]


def test_what_is_no_backup_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no backup")
    with pytest.raises(UsageError, match="not a backup of vgpuctl"), read_backup(tmp_path / "text", tmp_path / "w"):
        pass
    with pytest.raises(UsageError, match="cannot be read"), read_backup(tmp_path / "none", tmp_path / "w"):
        pass


def test_a_full_disk_leaves_nothing_behind(store: Store, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        with disk.full(), pytest.raises(FileNotWritten, match="the disk is full"):
            write_backup(store, disk.path / "backup", with_key=False)
        assert _rest(disk.path) == []
        (disk.path / "ballast").write_bytes(b"x" * (4 * 1024 * 1024 - 28 * 1024))
        with pytest.raises(FileNotWritten, match="the disk is full"):
            write_backup(store, disk.path / "backup", with_key=False)
        assert _rest(disk.path) == ["ballast"]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    yield folder


@pytest.mark.parametrize(
    ("version", "said"), [(None, "pg_dump is not installed"), ("9.6.24", "pg_dump is too old for the server")]
)
def test_a_missing_or_old_pg_dump_is_named(
    version: str | None, said: str, store: Store, place: Path, programs: Path
) -> None:
    if store.kind is StoreKind.SQLITE:
        write_backup(store, place / "backup", with_key=False)  # needs no program
        return
    if version is not None:
        program = programs / "pg_dump"
        program.write_text(f"#!/bin/sh\necho 'pg_dump (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    with pytest.raises(StoreUnusable, match=said) as refused:
        write_backup(store, place / "backup", with_key=False)
    assert refused.value.hint and "apt-get install postgresql-client" in refused.value.hint
    assert _rest(place) == []


def test_the_password_is_in_no_argument(store: Store, place: Path, programs: Path) -> None:
    """The program in the place of pg_dump writes its arguments down."""
    if store.kind is StoreKind.SQLITE:
        return
    program = programs / "pg_dump"
    program.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'pg_dump (PostgreSQL) 99'; exit; }\n"
        f'echo "$@" >{place}/arguments; echo "$PGPASSWORD" >{place}/password; exit 1\n'
    )
    program.chmod(0o755)
    with pytest.raises(StoreUnusable, match="pg_dump failed"):
        write_backup(store, place / "backup", with_key=False)
    password = (place / "password").read_text().strip()
    assert password and password not in (place / "arguments").read_text()
    assert os.environ.get("PGPASSWORD") is None


def test_a_pipe_is_no_backup(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = read_backup(tmp_path / "pipe", tmp_path / "work")
    with pytest.raises(UsageError, match="pipe is no regular file") as refused, reading:
        pass
    assert "file of backup-store" in (refused.value.hint or "")
