# SPDX-License-Identifier: Apache-2.0
"""Secret documents and the store: digests of VMs, encrypted documents of the queue."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.integration.store.samples import full_request, vm
from vgpuctl.errors import FileNotTrusted, StateError, StoreUnusable
from vgpuctl.model.queue import QueueKind
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit
from vgpuctl.store.sealed import KeyFile
from vgpuctl.store.store import open_store

SECRET = "#cloud-config\npassword: hunter2\n"
REQUEST = replace(full_request(), cloud_init=CloudInit((), SecretText.of(SECRET), SecretText.of("version: 2\n")))


def _everything(url: str) -> str:
    """Every column of every row, and for SQLite the bytes of the files too."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        rows = [str(connection.execute(text(f"SELECT * FROM {name}")).all()) for name in ("vms", "queue", "events")]
    engine.dispose()
    path = Path(url.removeprefix("sqlite:///"))
    files = sorted(path.parent.glob("store.db*")) if url.startswith("sqlite") else []
    return "".join([*rows, *(file.read_bytes().decode("latin-1") for file in files)])


def test_a_vm_keeps_digests_and_a_queued_vm_its_documents_encrypted(url: str, key: Path) -> None:
    with open_store(url, key_file=key) as store:
        with store.transaction() as session:
            session.add_tenant("acme")
            session.add_vm(replace(vm(), request=REQUEST))
            session.join_queue(QueueKind.CREATE, replace(REQUEST, name="web-2"))
            session.join_queue(QueueKind.GANG, replace(REQUEST, name="a"), others=[replace(REQUEST, name="b")])
            session.join_queue(QueueKind.START, REQUEST)
        with store.reading() as session:
            kept = session.vm("acme", "web-1")
            entries = session.queue()
            filled = [session.with_secrets(entry) for entry in entries]
        assert "hunter2" not in _everything(url)
        assert kept is not None and kept.request == REQUEST
        assert kept.request.cloud_init.user_data is not None
        with pytest.raises(StateError, match="the store keeps none"):
            kept.request.cloud_init.user_data.reveal()
        assert entries == filled
        for entry in filled[:2]:
            for request in entry.requests:
                assert request.cloud_init.user_data is not None
                assert request.cloud_init.user_data.reveal() == SECRET
    key.write_text("ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=\n")
    with open_store(url, key_file=key) as store, store.reading() as session:
        assert len(session.queue()) == 3
        with pytest.raises(StoreUnusable, match="cannot be decrypted with the key"):
            session.with_secrets(session.queue()[0])


def test_sqlite_makes_its_key_when_it_needs_it_and_postgresql_wants_one(url: str) -> None:
    with open_store(url) as store:
        with store.transaction() as session:
            session.add_tenant("acme")
            session.join_queue(QueueKind.CREATE, replace(REQUEST, name="plain", cloud_init=CloudInit()))
        key = Path(f"{url.removeprefix('sqlite:///')}.key")
        assert not key.exists()
        if url.startswith("postgresql"):
            with pytest.raises(StoreUnusable, match="no key to encrypt") as caught, store.transaction() as session:
                session.join_queue(QueueKind.CREATE, REQUEST)
            assert "VGPUCTL_KEY_FILE" in (caught.value.hint or "")
            return
        with store.transaction() as session:
            session.join_queue(QueueKind.CREATE, REQUEST)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with open_store(url) as store, store.reading() as session:
        (_, entry) = map(session.with_secrets, session.queue())
        assert entry.request.cloud_init.user_data is not None
        assert entry.request.cloud_init.user_data.reveal() == SECRET


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [("short\n", 0o600, "not hold 32 bytes"), ("", 0o600, "32 bytes"), ("x" * 44, 0o644, "may be read by every user")],
)
def test_a_key_file_that_cannot_be_used_is_told(tmp_path: Path, content: str, mode: int, said: str) -> None:
    path = tmp_path / "key"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises((StoreUnusable, FileNotTrusted), match=said) as caught:
        KeyFile(path, makes_key=True).seal({"a": {"user_data": "x"}})
    assert caught.value.hint is not None
    with pytest.raises(StoreUnusable, match="No such file"):
        KeyFile(tmp_path / "none", makes_key=False).seal({"a": {"user_data": "x"}})
