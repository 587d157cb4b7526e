# SPDX-License-Identifier: Apache-2.0
"""Backups: one tar file of a manifest, the store's content, and on request the key file; written whole or not at all.

The content is SQLite's own file, or PostgreSQL's custom dump: each database's own programs can read it without vgpuctl.
"""

import contextlib
import hashlib
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from vgpuctl import __version__, typed_json
from vgpuctl.errors import StoreUnusable, UsageError
from vgpuctl.local_files import folder_beside, publish_new
from vgpuctl.model.backup import BackupManifest, KeyCopy, StoreKind
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.store import postgresql_programs, sqlite
from vgpuctl.store.failures import not_utf_8
from vgpuctl.store.schema import SCHEMA_VERSION, VERSION_TABLE
from vgpuctl.store.store import Store
from vgpuctl.trusted_files import NAMED, opened

FORMAT = 1
WHAT = "the backup"
MANIFEST, KEY = "manifest.json", "key"
CONTENT = {StoreKind.SQLITE: "store.sqlite", StoreKind.POSTGRESQL: "store.pgdump"}
_MOST_MANIFEST_BYTES = 64 * 1024
_MOST_KEY_BYTES = 4096


@dataclass(frozen=True)
class Unpacked:
    """A backup that was read and checked. content: its copy of the store. key: the key file's content, None without."""

    manifest: BackupManifest
    content: Path
    key: bytes | None


def write_backup(store: Store, path: Path, *, with_key: bool) -> BackupManifest:
    """Write a backup of the store to a new file of mode 0600, check it, and add the event `store-backed-up`.

    The store is in use meanwhile; the backup is one state of it. A store that can only be read gets no event, and
    must have its identity already. Raises UsageError when the file is there, StoreUnusable, FileNotWritten.
    """
    if path.exists():
        raise UsageError(f"{path} is there already", hint="a backup never replaces a file; give another name")
    try:
        str(path).encode()
    except UnicodeEncodeError as exc:
        raise not_utf_8(exc) from exc
    store_id = _identity(store)
    key = store.key_content()
    if with_key and key is None:
        raise UsageError("the store has no key file to include", hint="leave out --with-key")
    with folder_beside(path, WHAT) as folder:
        kind = store.kind
        content = folder / CONTENT[kind]
        taken_at = store.now()
        store.copy_to(content)
        check_content(kind, content)
        manifest = BackupManifest(
            format=FORMAT,
            kind=kind,
            schema=SCHEMA_VERSION,
            taken_at=taken_at,
            store_id=store_id,
            store=store.name,
            vgpuctl=__version__,
            sha256=_sha256(content),
            size_bytes=content.stat().st_size,
            key=KeyCopy.NONE if key is None else KeyCopy.INCLUDED if with_key else KeyCopy.SEPARATE,
            key_sha256=None if key is None else hashlib.sha256(key).hexdigest(),
        )
        packed = folder / "backup.tar"
        _pack(packed, manifest, content, key if with_key else None)
        content.unlink()
        with _unpacked(packed, folder):
            pass
        if not publish_new(packed, path, WHAT):
            raise UsageError(f"{path} is there already", hint="a backup never replaces a file; give another name")
    if store.read_only_reason is None:
        with store.transaction() as session:
            evidence: Values = {"schema": manifest.schema, "sha256": manifest.sha256, "taken_at": taken_at}
            session.add_event(EventKind.STORE_BACKED_UP, "store", after={"file": str(path)}, evidence=evidence)
    return manifest


@contextlib.contextmanager
def read_backup(path: Path, work: Path) -> Iterator[Unpacked]:
    """Unpack a backup beside `work`, and check it whole, for the length of the block.

    Raises UsageError for a file that is not a backup, StoreUnusable for a damaged one, FileNotWritten.
    """
    with folder_beside(work, "the unpacked backup") as folder, _unpacked(path, folder) as unpacked:
        yield unpacked


def check_content(kind: StoreKind, content: Path) -> None:
    """Read a copy of a store to its end and check it. Raises StoreUnusable when it is damaged, or holds no store."""
    if kind is StoreKind.SQLITE:
        sqlite.check_file(content)
        return
    listed = postgresql_programs.contents(content)
    missing = [name for name in (VERSION_TABLE, "settings") if f" {name} " not in listed]
    if missing:
        raise StoreUnusable(f"the dump has no table {', '.join(missing)} of vgpuctl")


def _identity(store: Store) -> str:
    with store.reading() as session:
        found = session.store_id()
    if found is None and store.read_only_reason is None:
        with store.transaction() as session:
            found = session.ensure_store_id()
    return found or "unknown"


def _pack(packed: Path, manifest: BackupManifest, content: Path, key: bytes | None) -> None:
    with tarfile.open(packed, "w", format=tarfile.PAX_FORMAT) as tar:
        members = [(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")]
        members += [] if key is None else [(KEY, key)]
        for name, data in members:
            tar.addfile(_member(name, len(data), manifest), io.BytesIO(data))
        with content.open("rb") as file:
            tar.addfile(_member(content.name, manifest.size_bytes, manifest), file)


def _member(name: str, size: int, manifest: BackupManifest) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, int(manifest.taken_at)
    return member


@contextlib.contextmanager
def _unpacked(path: Path, folder: Path) -> Iterator[Unpacked]:
    try:
        with (
            opened(path, NAMED) as judged,
            _regular_file(path, judged.descriptor) as file,
            tarfile.open(fileobj=file, mode="r:") as tar,
        ):
            manifest = _manifest(tar, path)
            content = folder / CONTENT[manifest.kind]
            source = tar.extractfile(_regular(tar, content.name))
            assert source is not None
            with content.open("wb") as target:
                content.chmod(0o600)
                shutil.copyfileobj(source, target, 1024 * 1024)
            key = _small(tar, KEY, _MOST_KEY_BYTES) if manifest.key is KeyCopy.INCLUDED else None
    except (tarfile.TarError, EOFError) as exc:
        raise UsageError(f"{path} is not a backup of vgpuctl: {exc}", hint="name a file of backup-store") from exc
    except KeyError as exc:
        raise UsageError(f"{path} is not a whole backup of vgpuctl: {exc.args[0]}") from exc
    except OSError as exc:
        if isinstance(exc, FileNotFoundError | PermissionError | IsADirectoryError):
            raise UsageError(f"{path} cannot be read: {exc.strerror}") from exc
        raise
    try:
        if _sha256(content) != manifest.sha256:
            raise StoreUnusable(f"{path} is damaged: its content has another SHA-256 than its manifest says")
        check_content(manifest.kind, content)
        yield Unpacked(manifest, content, key)
    finally:
        content.unlink(missing_ok=True)


def _regular_file(path: Path, descriptor: int) -> BinaryIO:
    """The opened file; a pipe cannot be read in the order that a backup needs. Raises UsageError."""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UsageError(f"{path} is no regular file", hint="name a file of backup-store")
    return open(descriptor, "rb", closefd=False)


def _manifest(tar: tarfile.TarFile, path: Path) -> BackupManifest:
    try:
        manifest: BackupManifest = typed_json.decode(_small(tar, MANIFEST, _MOST_MANIFEST_BYTES), BackupManifest)
    except msgspec.MsgspecError as exc:
        raise UsageError(f"the manifest of {path} cannot be read: {exc}") from exc
    if manifest.format > FORMAT:
        raise UsageError(f"{path} has format {manifest.format}, this vgpuctl knows {FORMAT}", hint="use the newer one")
    return manifest


def _small(tar: tarfile.TarFile, name: str, most: int) -> bytes:
    member = _regular(tar, name)
    if member.size > most:
        raise UsageError(f"{name} of the backup has {member.size} bytes, more than {most}")
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def _regular(tar: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    member = tar.getmember(name)
    if not member.isreg():
        raise UsageError(f"{name} of the backup is no regular file")
    return member


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
