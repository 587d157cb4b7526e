# SPDX-License-Identifier: Apache-2.0
"""Files that vgpuctl writes on this machine, outside of the store and the lab.

Everything written passes through here, so that a full or read-only disk is named in one way, and so that a file is
written whole or not at all. Nobody else may be able to lead a write to another place (`find_place`).
"""

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from vgpuctl.errors import FileNotWritten
from vgpuctl.trusted_files import find_place

_REASONS = {
    errno.ENOSPC: ("the disk is full", "free some space or inodes there"),
    errno.EDQUOT: ("the disk quota of this user is used up", "delete files there, or have the quota raised"),
    errno.EROFS: ("the file system is read-only", "mount it for writing, or name another place"),
    errno.EFBIG: ("the file would be larger than the limit", "raise the limit (`ulimit -f`)"),
}


def is_out_of_room(error: BaseException) -> bool:
    """True if the system refused a write for lack of room: disk, quota, file size, or a read-only file system."""
    return isinstance(error, OSError) and error.errno in _REASONS


def not_written(error: OSError, what: str, path: Path | str | None) -> FileNotWritten:
    """Describe a refused write. what: the content in words. path: None where the system named no file."""
    reason, hint = _REASONS.get(error.errno or 0, (error.strerror or str(error), None))
    place = f" to {path}" if path is not None else ""
    if hint is None:
        hint = "check that the folder exists and that this user may write there"
    else:
        reason += f" (the system answered: {error.strerror})"
        if path is not None:
            folder = Path(path)
            hint += f"; `df -h {shlex.quote(str(folder if folder.is_dir() else folder.parent))}` shows the disk"
    return FileNotWritten(f"{what} cannot be written{place}: {reason}", hint=hint)


@contextlib.contextmanager
def writing(what: str, path: Path | str | None) -> Iterator[None]:
    """Translate what the system answers in the block. Raises FileNotWritten; a closed pipe stays BrokenPipeError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise not_written(error, what, path) from error


def make_folder(path: Path, what: str, *, mode: int = 0o777) -> None:
    """Make a folder and its parents; one that is there stays as it is. Raises FileNotWritten."""
    with writing(what, path):
        path.mkdir(mode=mode, parents=True, exist_ok=True)


def read_own(path: Path) -> bytes | None:
    """The content of a file that only this user can have written; None where there is none, or others can write to it.

    The file and its folder belong to this user, no other may write to them, and neither is a symbolic link. For what is
    run or believed although it lies where programs keep copies, such as a cache.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not wait for a writer
            file = os.open(path.name, flags, dir_fd=folder)
            with os.fdopen(file, "rb") as opened:
                found = os.fstat(file)
                is_own = stat.S_ISREG(found.st_mode) and _is_own(found) and _is_own(os.fstat(folder))
                return opened.read() if is_own else None
        finally:
            os.close(folder)
    except OSError:
        return None


def make_own_folder(path: Path, what: str) -> bool:
    """Make a folder of mode 0700, unless there is one or it would lie in another user's. Raises FileNotWritten.

    Returns True if it belongs to this user and no other may write to it.
    """
    with writing(what, path):
        above = next(one for one in (path, *path.parents) if one.exists())
        if above.stat().st_uid != os.geteuid():  # root with the HOME of another user
            return False
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _is_own(path.lstat())


def _is_own(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def make_first_folder(parents: list[Path], what: str, *, prefix: str) -> Path:
    """Make a new folder of mode 0700 in the first of these parents that takes it. Raises FileNotWritten."""
    first: OSError | None = None
    for parent in parents:
        path = parent / f"{prefix}{os.urandom(4).hex()}"
        try:
            path.mkdir(mode=0o700)
        except OSError as error:
            first = first or error
        else:
            return path
    assert first is not None
    raise not_written(first, what, parents[0]) from first


def private_places() -> list[Path]:
    """Folders for what lives as long as a command: the user's choice, the disk, then file systems in memory."""
    import tempfile

    runtime = os.environ.get("XDG_RUNTIME_DIR")
    try:
        usual = Path(tempfile.gettempdir())
    except FileNotFoundError:  # it tries to write a file in each place that it knows
        usual = Path("/tmp")
    return [usual, Path("/tmp"), *([Path(runtime)] if runtime else []), Path("/dev/shm")]


@contextlib.contextmanager
def scratch_folder(what: str, files: Sequence[Path]) -> Iterator[Path]:
    """Copy files into a private folder where there is room, in memory if need be, for the length of the block.

    Raises FileNotWritten where no place has room, OSError for a file that cannot be read.
    """
    import shutil

    folder = _copied(what, files)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copied(what: str, files: Sequence[Path]) -> Path:
    import shutil

    failures = []
    for place in reversed(private_places()):
        folder = None
        try:
            folder = make_first_folder([place], what, prefix="vgpuctl-")
            for file in files:
                write_file(folder / file.name, file.read_bytes(), what, mode=0o600)
        except FileNotWritten as error:
            failures.append(error)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
        else:
            return folder
    raise failures[-1]


def open_lock(path: Path, what: str) -> int:
    """Open a file to lock, made when it is missing, for its owner alone. Raises FileNotWritten."""
    place = _place(path, what)
    with writing(what, path):
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def make_private(path: Path, what: str) -> None:
    """Make an empty file for its owner alone, unless one is there; no link is followed. Raises FileNotWritten."""
    with writing(what, path), contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def open_to_append(path: Path, what: str) -> int:
    """Open a file to append to, made when it is missing, for its owner alone. Raises FileNotWritten.

    A pipe that nobody reads is refused, instead of waiting for a reader.
    """
    place = _place(path, what)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with writing(what, path):
        descriptor = os.open(place, flags, 0o600)
        os.set_blocking(descriptor, True)
        return descriptor


def replace_file(path: Path, content: bytes, what: str) -> None:
    """Write a file for its owner alone in the place of a regular file; no link is followed. Raises FileNotWritten."""
    place = _place(path.parent, what) / path.name
    with writing(what, path):
        if place.is_symlink():
            leads = f"name the file that it leads to, {place.resolve()}, or another one"
            raise FileNotWritten(f"{what} cannot be written to {path}: it is a symbolic link", hint=leads)
        if place.exists() and not place.is_file():
            message = f"{what} cannot be written to {path}: it is no regular file"
            raise FileNotWritten(message, hint="give another file")
        _replace(place, content, mode=0o600)


def write_file(path: Path, content: str | bytes, what: str, *, mode: int | None = None) -> None:
    """Write a file whole or not at all: beside its place, flushed to the disk, then renamed.

    mode: of the file; None for the mode that it has, or the user's default. A device or pipe is written directly, and
    a link of this user is followed. Raises FileNotWritten; the file that was there is then unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    place = _place(path, what)
    with writing(what, path):
        there = _status(place)
        if there is not None and not stat.S_ISREG(there.st_mode):
            place.write_bytes(data)
            return
        kept = None if there is None else stat.S_IMODE(there.st_mode)
        _replace(place.resolve(), data, mode=mode if mode is not None else kept)


def write_new(path: Path, content: bytes, what: str) -> bool:
    """Write a file for its owner alone, unless one is there; it appears whole. Returns True if it was written.

    Raises FileNotWritten.
    """
    place = _place(path.parent, what) / path.name
    with writing(what, path), _beside(place, content, 0o600) as temporary:
        try:
            place.hardlink_to(temporary)
        except FileExistsError:
            return False
    return True


@contextlib.contextmanager
def folder_beside(path: Path, what: str) -> Iterator[Path]:
    """A folder of mode 0700 beside the place of a file, for what the file is made of. It is removed at the end.

    Raises FileNotWritten, also for what the system answers in the block.
    """
    import shutil

    place = _place(path.parent, what)
    with writing(what, path):
        folder = make_first_folder([place], what, prefix=f".{path.name[:200]}.")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def publish_new(made: Path, path: Path, what: str) -> bool:
    """Give a finished file of `folder_beside` its name, for its owner alone, unless there is one. Returns True if done.

    It is on the disk before it has the name. Raises FileNotWritten.
    """
    folder = _place(path.parent, what)
    with writing(what, path):
        made.chmod(0o600)
        _flush(made)
        try:
            (folder / path.name).hardlink_to(made)
        except FileExistsError:
            return False
        _flush(folder)
    return True


def is_full_answer(said: str) -> bool:
    """True if a program says that the system refused a write for lack of room."""
    return any(os.strerror(number) in said for number in _REASONS)


def room_refused(what: str, path: Path) -> FileNotWritten:
    """The error for a program's answer that `is_full_answer` knows."""
    return not_written(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), what, path)


def _place(path: Path, what: str) -> Path:
    """Where a file or folder is or will be, without links. Raises FileNotWritten for a way that others can change."""
    with writing(what, path):
        found = find_place(path)
    if found.refusal is not None:
        raise FileNotWritten(f"{what} cannot be written to {path}: {found.refusal.reason}", hint=found.refusal.hint)
    return Path(found.path)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: Path, data: bytes, *, mode: int | None) -> None:
    with _beside(path, data, 0o666 if mode is None else mode) as temporary:
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)


@contextlib.contextmanager
def _beside(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    """A file in the same folder with this content, removed at the end unless it was renamed."""
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(4).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
