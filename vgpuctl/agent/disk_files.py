# SPDX-License-Identifier: Apache-2.0
"""The files of the machine's disk: images, configuration, logs, and the agent's own."""

import contextlib
import errno
import os
import stat
import sys
from typing import BinaryIO, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, TypeVar

from vgpuctl.agent import time_limits
from vgpuctl.agent.file_problems import put_problem, read_problem
from vgpuctl.agent.machine_root import MachineRoot
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

T = TypeVar("T")

_ZEROS = 1 << 20
_ANSWER_S = 5.0
_BLOCK_BYTES = 512
# Questions to file systems, by root and subject, without an answer yet: one to a server that is gone hangs for ever.
_asking: Set[Tuple[str, str]] = set()


class DiskFiles(MachineRoot):
    """The files of the disk under a root. A file is written whole, or not at all."""

    def read_bytes(self, path: str) -> Optional[bytes]:
        """Return a file's bytes from the disk, None for a missing file."""
        return self._bytes_of(path)[0]

    def _bytes_of(self, path: str) -> Tuple[Optional[bytes], bool]:
        """Return a file's bytes, None for a missing file, and whether others than its owner or root may write it."""
        try:
            with open(self.path(path), "rb") as file:
                found = os.fstat(file.fileno())
                is_open = bool(found.st_mode & 0o022) or found.st_uid not in (0, os.geteuid())
                return file.read(), is_open
        except (FileNotFoundError, NotADirectoryError):
            return None, False
        except OSError as error:
            raise read_problem(path, error) from error

    def digest(self, path: str) -> Optional[str]:
        """Return the sha256 of a file of the disk in hex, None for a missing file.

        A file that others may write is none of ours, whatever it holds now: words stand behind its digest.
        """
        import hashlib  # loads OpenSSL, which changes alone do not need

        data, is_open = self._bytes_of(path)
        if data is None:
            return None
        return hashlib.sha256(data).hexdigest() + ", writable by others" * is_open

    def stamp(self, path: str) -> Optional[Tuple[int, int, int]]:
        """Return what changes when a file of the disk is replaced or written, None where there is none."""
        try:
            found = os.stat(self.path(path))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def space(self, path: str) -> Tuple[str, int, int]:
        """Return where a folder leads, and the size and the free bytes of the file system there. Raises Problem."""

        def ask() -> Tuple[str, int, int]:
            place = os.path.realpath(self.path(path))
            found = os.statvfs(place)
            return self.seen(place), found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail

        return self._ask_disk(path, ask)

    def allocated(self, what: str, paths: Sequence[str]) -> Dict[str, Tuple[str, int]]:
        """Return where regular files lie, and the bytes that they take there. Raises Problem.

        Other paths are left out. what: the files in words, the same for those that hang together.
        """

        def ask() -> Dict[str, Tuple[str, int]]:
            found = _allocated({path: self.path(path) for path in paths})
            return {path: (self.seen(place), size) for path, (place, size) in found.items()}

        return self._ask_disk(what, ask)

    def _ask_disk(self, what: str, ask: Callable[[], T]) -> T:
        """Return an answer of file systems, which can hang. Raises Problem."""
        question = self.root, what
        if question in _asking:
            raise Problem(ProblemCode.UNREADABLE, f"{what}: the file system has not answered since it was asked before")
        answers: List[T] = []

        def keep() -> None:
            try:
                answers.append(ask())
            finally:
                _asking.discard(question)

        _asking.add(question)
        try:
            time_limits.call_within(_ANSWER_S, keep)
        except time_limits.StillRunning as error:
            said = f"{what}: the file system does not answer within {_ANSWER_S:g} s"
            raise Problem(ProblemCode.UNREADABLE, said) from error
        except OSError as error:
            raise read_problem(what, error) from error
        return answers[0]

    def read_tail(self, path: str, size: int = 1 << 18) -> str:
        """Return the end of a file that may be large, nothing where it cannot be read."""
        try:
            with open(self.path(path), "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - size))
                return file.read(size).decode(errors="replace")
        except OSError:
            return ""

    def open_image(self, path: str) -> BinaryIO:
        """Open a regular file or block device of the disk for reading. Raises OSError, Problem `not-an-image`."""
        # O_NONBLOCK: the open of a pipe must not wait for a writer.
        descriptor = os.open(self.path(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            os.close(descriptor)
            raise Problem(ProblemCode.NOT_AN_IMAGE, f"{path} is neither a file nor a block device", path=path)
        return os.fdopen(descriptor, "rb")

    def disk_link(self, path: str) -> Optional[str]:
        """Return the text of a symbolic link on the disk, None when there is none."""
        try:
            return os.readlink(self.path(path))
        except OSError:
            return None

    def own_program(self) -> bytes:
        """Return the agent's own file."""
        path = sys.argv[0]
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise read_problem(path, error) from error

    def owner_of(self, path: str) -> Optional[int]:
        """Return the user id that owns a file of the disk, None where there is none."""
        try:
            return os.stat(self.path(path)).st_uid
        except OSError:
            return None

    def user_id(self, name: str) -> int:
        """Return the id of a user of the machine. Raises Problem `no-such-user`."""
        import pwd

        try:
            return pwd.getpwnam(name).pw_uid
        except (KeyError, ValueError):
            raise Problem(ProblemCode.NO_SUCH_USER, f"this host has no user {name}") from None

    def give(self, descriptor: int, path: str, owner: int) -> None:
        """Give an open file to a user. Raises OSError; a simulated machine answers here."""
        if owner:
            os.fchown(descriptor, owner, -1)

    def put_file(self, path: str, data: bytes, mode: int, *, owner: int = 0) -> None:
        """Write a whole file of the disk: first under another name in its folder, then renamed. Raises Problem.

        mode: whatever the umask is; a new folder above it gets 0755. owner: a user id; a file of root's stays its
        writer's.
        """
        self.writes += 1
        place = self.path(path)
        temporary = f"{place}.{os.getpid()}"
        try:
            _make_folders(os.path.dirname(place))
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
                self.give(descriptor, path, owner)
                os.fchmod(descriptor, mode)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, place)
        except OSError as error:
            _remove(temporary)
            raise put_problem(path, error) from error

    def put_link(self, path: str, target: str) -> None:
        """Make a symbolic link of the disk, in place of what is there. Raises Problem."""
        self.writes += 1
        place = self.path(path)
        temporary = f"{place}.{os.getpid()}"
        try:
            _make_folders(os.path.dirname(place))
            os.symlink(target, temporary)
            os.rename(temporary, place)
        except OSError as error:
            _remove(temporary)
            raise put_problem(path, error) from error

    def read_below(self, base: str, path: str, *, most: int) -> Tuple[bytes, int, str]:
        """Return content, mode and owner of a regular file below a folder of root's. Raises Problem.

        No link below the folder is followed: others can write there. most: of bytes.
        """
        try:
            with open(_open_below(self.path(base), path.split("/")), "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode) or found.st_size > most:
                    message = f"{base}/{path} is no regular file of at most {most} bytes"
                    raise Problem(ProblemCode.UNEXPECTED_VALUE, message, path=f"{base}/{path}")
                return file.read(most), stat.S_IMODE(found.st_mode), self.user_name(found.st_uid)
        except OSError as error:
            raise read_problem(f"{base}/{path}", error) from error

    def user_name(self, number: int) -> str:
        """Return the name of a user of the machine, its number as text where it has none."""
        import pwd

        try:
            return pwd.getpwuid(number).pw_name
        except KeyError:
            return str(number)

    def close_folder(self, path: str, *, owner: int) -> None:
        """Keep a folder of the disk from all but its owner. Raises Problem."""
        try:
            descriptor = os.open(self.path(path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                self.give(descriptor, path, owner)
                os.fchmod(descriptor, 0o700)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise put_problem(path, error) from error

    def overwrite(self, base: str, path: str) -> None:
        """Overwrite a regular file below a folder of root's with zeros, on the disk too. Raises Problem.

        No link below the folder is followed. Whatever else is there is left as it is.
        """
        try:
            with open(_open_below(self.path(base), path.split("/"), os.O_RDWR), "r+b", buffering=0) as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                    return
                for start in range(0, found.st_size, _ZEROS):
                    file.write(bytes(min(_ZEROS, found.st_size - start)))
                os.fsync(file.fileno())
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO):
                raise put_problem(f"{base}/{path}", error) from error

    def remove_folder(self, path: str) -> bool:
        """Remove a folder of the disk with its files. Returns whether it was there. Raises Problem."""
        import shutil

        return self._remove_by(shutil.rmtree, path)

    def remove_file(self, path: str) -> bool:
        """Remove a file of the disk. Returns whether it was there. Raises Problem."""
        return self._remove_by(os.unlink, path)

    def _remove_by(self, remove: Callable[[str], object], path: str) -> bool:
        try:
            remove(self.path(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise put_problem(path, error) from error
        self.writes += 1
        return True


def _allocated(places: Mapping[str, str]) -> Dict[str, Tuple[str, int]]:
    folders: Dict[str, str] = {}
    found = {}
    for path, place in places.items():
        folder, name = os.path.split(place)
        with contextlib.suppress(OSError):
            if folder not in folders:
                folders[folder] = os.path.realpath(folder)
            real = os.path.join(folders[folder], name)
            status = os.lstat(real)
            if stat.S_ISLNK(status.st_mode):
                real = os.path.realpath(real)
                status = os.stat(real)
            if stat.S_ISREG(status.st_mode):
                found[path] = real, status.st_blocks * _BLOCK_BYTES
    return found


def _remove(temporary: str) -> None:
    """Remove a file that was not finished, so that a full disk is not filled by further tries."""
    with contextlib.suppress(OSError):
        os.unlink(temporary)


def _open_below(base: str, parts: Sequence[str], access: int = os.O_RDONLY) -> int:
    """Open a file below a folder without following a link. Raises OSError."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, part in enumerate(parts):
        try:
            own = access if number == len(parts) - 1 else os.O_RDONLY | os.O_DIRECTORY
            opened = os.open(part, flags | own, dir_fd=folder)
        finally:
            os.close(folder)
        folder = opened
    return folder


def _make_folders(place: str) -> None:
    """Make what is missing of a folder, with 0755 whatever the umask is. Raises OSError."""
    if os.path.isdir(place):
        return
    _make_folders(os.path.dirname(place))
    try:
        os.mkdir(place)
    except FileExistsError:
        return
    os.chmod(place, 0o755)
