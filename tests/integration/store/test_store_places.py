# SPDX-License-Identifier: Apache-2.0
"""Where a store may be: on a full disk, which is only read, and in a database that a service file names."""

import subprocess
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.integration.store.samples import fill
from tests.integration.store.test_store_opening import assert_only_readable
from tests.postgres_fixture import LocalPostgres
from vgpuctl.errors import StoreUnusable
from vgpuctl.model.event_kind import EventKind
from vgpuctl.store.store import open_store


def test_a_store_on_a_full_disk_is_read_and_a_change_says_so(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    try:
        url = f"sqlite:///{disk}/store.db"
        with open_store(url) as store:
            fill(store)
            with pytest.raises(OSError, match="No space left"), (disk / "other").open("wb", buffering=0) as other:
                while True:
                    other.write(b"x" * 65536)
            with (
                pytest.raises(StoreUnusable, match=r"the disk of the store .* is full"),
                store.transaction() as session,
            ):
                for number in range(10_000):
                    session.add_event(EventKind.HOST_ADOPTED, "thing", "x" * 10_000 + str(number))
        with open_store(url) as store:
            assert_only_readable(store)
            assert store.read_only_reason is not None and "the disk is full" in store.read_only_reason
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_service_file_names_the_database(
    postgres: LocalPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres.create_database() as database:
        url = make_url(database)
        host = url.host or url.query.get("host")
        port = f"port={url.port}\n" if url.port else ""
        lines = f"[vgpuctl]\nhost={host}\n{port}dbname={url.database}\nuser={postgres.user}\n"
        (tmp_path / "services").write_text(lines)
        (tmp_path / "passwords").write_text(f"*:*:*:*:{postgres.password}\n")
        (tmp_path / "passwords").chmod(0o600)
        monkeypatch.setenv("PGSERVICEFILE", f"{tmp_path}/services")
        monkeypatch.setenv("PGPASSFILE", f"{tmp_path}/passwords")
        with open_store("postgresql://?service=vgpuctl") as store:
            fill(store)
            assert store.name == "postgresql://?service=vgpuctl"
        with open_store(database) as store, store.reading() as session:
            assert len(session.vms()) == 1
