# SPDX-License-Identifier: Apache-2.0
"""The one gate for files that can run something, connect, log in or be believed: who could have written them.

A file is as trustworthy as whoever may change it, exchange it, or exchange a folder on the way to it. Every part of the
path is opened once, from the root on and without following links, and judged by what was opened; nothing is looked up
by its name again, so that nobody can exchange a part in between.

Trusted are root, the user of this process and, under sudo, the user who called it. Naming a file is consent to its
owner too. Nobody else may write to the file, to a link's folder or to a folder on the way: by mode, by group or by
access control list. A group whose only members are trusted is one of them. In a folder with the sticky bit others may
add files, but not exchange ours, so there the owners of what lies in it decide (Linux chmod(2)).
"""

import errno
import os
import re
import select
import shlex
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from vgpuctl.errors import FileNotTrusted

_MOST_LINKS = 40
"""As Linux follows in one path (path_resolution(7))."""
_GIVEN = re.compile(r"/dev/(?:fd/[0-9]+|stdin|stdout|stderr)|/proc/(?:self|[0-9]+)/fd/[0-9]+")
"""Descriptors that somebody opened, such as those of `<(…)` in a shell, or slurmctld's of a file in memory.

The kernel lets nobody use those of another process who might not debug it (proc_pid_fd(5)).
"""
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = _FLAGS | os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK  # a pipe must not wait for a writer
_ACL = "system.posix_acl_access"
_ACL_HEADER, _ACL_ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_ACL_USER, _ACL_OWNING_GROUP, _ACL_GROUP, _ACL_MASK = 0x02, 0x04, 0x08, 0x10  # Linux include/uapi/linux/posix_acl.h
_READ, _WRITE = 4, 2
_LAST_STATIC_GROUP = 99
"""The numbers that Debian itself gives (Debian Policy 9.2.2), such as group staff, which may write to /usr/local."""


LONGEST_WAIT_S = 10.0
"""For the writer of a pipe, as of `<(…)` in a shell."""
_CHUNK = 2**20


def read_whole(descriptor: int, most_bytes: int, *, longest_s: float) -> bytes:
    """Read from where it was read to until the end, or a chunk beyond so many bytes.

    Anybody can put a pipe in the place of a file: one whose writers do not end is given up. Raises OSError.
    """
    deadline = time.monotonic() + longest_s
    content = bytearray()
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    while len(content) < most_bytes:
        if not is_file and not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(errno.ETIMEDOUT, f"the pipe did not end within {longest_s:g} s")
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        content += chunk
    return bytes(content)


@dataclass(frozen=True)
class Trust:
    """Owners that a reader trusts beside root and the user. is_secret: others may not read the file either.

    takes_owner: the file's owner, because the user named the file, or a file that is trusted names it.
    users: more of them by number, such as the owner of the inventory that a file of variables lies beside.
    """

    takes_owner: bool
    is_secret: bool = False
    users: frozenset[int] = frozenset()


NAMED = Trust(takes_owner=True)
"""For what the user named: on the command line, in the environment or in a file that is trusted."""
NAMED_SECRET = Trust(takes_owner=True, is_secret=True)
FOUND = Trust(takes_owner=False)
"""For what lies where we look."""
FOUND_SECRET = Trust(takes_owner=False, is_secret=True)


@dataclass(frozen=True)
class Judged:
    """An opened file or folder that passed. path: where it is, without links. users: the numbers of those trusted."""

    descriptor: int
    path: str
    users: frozenset[int]

    @property
    def name(self) -> str:
        """A name of exactly this file, for a library that opens files itself."""
        return f"/proc/self/fd/{self.descriptor}"

    def read(self, most_bytes: int, *, longest_s: float = LONGEST_WAIT_S) -> bytes:
        """The content as of `read_whole`. Raises OSError."""
        return read_whole(self.descriptor, most_bytes, longest_s=longest_s)


def our_users() -> frozenset[int]:
    """The numbers of the users that are trusted everywhere: root, this process's, and under sudo its caller's."""
    users = {0, os.geteuid()}
    caller = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isascii() and caller.isdigit():
        users.add(int(caller))
    return frozenset(users)


@contextmanager
def opened(path: str | os.PathLike[str], trust: Trust) -> Iterator[Judged]:
    """Open a file, pipe or folder for reading after it and everything on the way to it were judged.

    A pipe that nobody named is refused: somebody laid it there, and its reader would wait for a writer. Raises
    FileNotTrusted, and OSError for what the system refuses.
    """
    walk = _Walk(_FILE_FLAGS)
    try:
        descriptor = walk.run(os.fspath(path))
    finally:
        walk.close()
    try:
        is_folder = stat.S_ISDIR(walk.steps[-1].status.st_mode)  # whose content is in files of their own
        if (
            stat.S_ISFIFO(walk.steps[-1].status.st_mode)
            and not trust.takes_owner
            and not _GIVEN.fullmatch(os.fspath(path))
        ):
            raise FileNotTrusted(f"{walk.place} is not used: it is a pipe", hint="remove it")
        trust = replace(trust, is_secret=trust.is_secret and not is_folder)
        yield Judged(descriptor, walk.steps[-1].path, _judge(walk.steps, trust))
    finally:
        os.close(descriptor)


def judge(path: str | os.PathLike[str], trust: Trust) -> frozenset[int]:
    """Judge a path that another program or library opens by its name. Returns the numbers of the trusted users.

    Only for what cannot take a descriptor. Nothing is opened for reading. Raises as `opened`.
    """
    walk = _Walk(_FLAGS | os.O_PATH)
    try:
        os.close(walk.run(os.fspath(path)))
    finally:
        walk.close()
    return _judge(walk.steps, trust)


@dataclass(frozen=True)
class FileRefusal:
    """Why a file is not used or written: whose right is too wide, in words, and what this user can do."""

    reason: str
    hint: str


@dataclass(frozen=True)
class WritePlace:
    """Where a file is written. path: without links, but for a descriptor that the caller has opened."""

    path: str
    refusal: FileRefusal | None = None


def find_place(path: str | os.PathLike[str]) -> WritePlace:
    """Follow a path to the place where a file is, or will be, and judge the way there.

    Only who may write to the folder itself may change the way; its owner is trusted, because the user named the place.
    In a folder where everybody may add files, the file that is there is judged too. Raises OSError.
    """
    if _GIVEN.fullmatch(os.fspath(path)):
        return WritePlace(os.fspath(path))
    walk = _Walk(_FLAGS | os.O_PATH, may_be_new=True)
    try:
        descriptor = walk.run(os.fspath(path))
        if descriptor >= 0:
            os.close(descriptor)
    finally:
        walk.close()
    way = [one for one in walk.steps if not one.is_file()]
    folder = next(one for one in reversed(way) if stat.S_ISDIR(one.status.st_mode))
    is_everybodys = bool(folder.status.st_mode & stat.S_ISVTX)
    users = our_users() | (frozenset() if is_everybodys else {folder.status.st_uid})
    files = [one for one in walk.steps if one.is_file() and is_everybodys]
    refusal = _refusal(way, users, None, 0) or _refusal(files, users, walk.steps[-1], 0)
    return WritePlace(walk.place, refusal)


@dataclass(frozen=True)
class _Step:
    """A folder, a link or the file itself, as it was opened. acl: the access control list as stored, empty for none."""

    path: str
    status: os.stat_result
    acl: bytes = b""

    def is_file(self) -> bool:
        """True unless it is a folder or a link."""
        return not stat.S_ISDIR(self.status.st_mode) and not stat.S_ISLNK(self.status.st_mode)

    @classmethod
    def of(cls, descriptor: int, path: str) -> "_Step":
        status = os.fstat(descriptor)
        # The group's bits are the most that the list gives to anyone in it (acl(5)).
        return cls(path, status, _acl(descriptor) if status.st_mode & stat.S_IRWXG else b"")


class _Walk:
    """The way to a file. steps: what was opened on it, the file last. place: where it ends.

    may_be_new: the end of the path may be missing.
    """

    def __init__(self, flags: int, *, may_be_new: bool = False) -> None:
        self.steps: list[_Step] = []
        self.place = ""
        self._flags = flags
        self._may_be_new = may_be_new
        self._folder = -1

    def close(self) -> None:
        """Close the folder."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def run(self, path: str) -> int:
        """Open the file. Returns -1 for one that is missing and may be. Raises OSError."""
        if _GIVEN.fullmatch(path):
            return self._last(os.open(path, self._flags & ~os.O_NOFOLLOW), path)
        left = f"{'' if path.startswith('/') else os.getcwd()}/{path}".split("/")[::-1]  # noqa: PTH109
        at = self._enter("/", [])
        links = 0
        while left:
            name = left.pop()
            if name in ("", "."):
                continue
            here = at[:-1] if name == ".." else [*at, name]
            try:
                target = self._link_target(name, _shown(here))
            except FileNotFoundError:
                if not self._may_be_new or ".." in left:
                    raise
                self.place = _shown([*here, *(one for one in reversed(left) if one not in ("", "."))])
                return -1
            if target is not None:
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                left += target.split("/")[::-1]
                at = self._enter("/", []) if target.startswith("/") else at
            elif any(one not in ("", ".") for one in left):
                at = self._enter(name, here)
            else:
                return self._last(os.open(name, self._flags, dir_fd=self._folder), _shown(here))
        return self._last(os.open(".", self._flags, dir_fd=self._folder), _shown(at))

    def _link_target(self, name: str, shown: str) -> str | None:
        """The target of a symbolic link, None for any other file. Raises OSError."""
        found = os.open(name, _FLAGS | os.O_PATH, dir_fd=self._folder)
        try:
            if not stat.S_ISLNK(os.fstat(found).st_mode):
                return None
            self.steps.append(_Step(shown, os.fstat(found)))
            return os.readlink("", dir_fd=found)
        finally:
            os.close(found)

    def _enter(self, name: str, at: list[str]) -> list[str]:
        """Open the next folder. Returns where it is."""
        folder = os.open(name, _FLAGS | os.O_PATH | os.O_DIRECTORY, dir_fd=None if name == "/" else self._folder)
        self.close()
        self._folder = folder
        self.steps.append(_Step.of(folder, _shown(at)))
        return at

    def _last(self, descriptor: int, shown: str) -> int:
        self.place = shown
        self.steps.append(_Step.of(descriptor, shown))
        return descriptor


def _shown(parts: list[str]) -> str:
    return "/" + "/".join(parts)


def _acl(descriptor: int) -> bytes:
    try:
        # Through /proc, because a descriptor of O_PATH has no attributes of its own (open(2)).
        return os.getxattr(f"/proc/self/fd/{descriptor}", _ACL)
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return b""
        raise


@dataclass(frozen=True)
class _Right:
    """A right that is too wide. who: whose it is and what it is, in words. remedy: the command that takes it.

    remedy is None for the right of an owner.
    """

    who: str
    remedy: str | None = None


def _judge(steps: list[_Step], trust: Trust) -> frozenset[int]:
    """The users that are trusted; FileNotTrusted for the first right of anybody else."""
    file = steps[-1]
    users = our_users() | trust.users
    if trust.takes_owner:
        users |= {file.status.st_uid}
    refusal = _refusal(steps, users, file, _READ | _WRITE if trust.is_secret else _WRITE)
    if refusal is not None:
        raise FileNotTrusted(f"{file.path} is not used: {refusal.reason}", hint=refusal.hint)
    return users


def _refusal(steps: Sequence[_Step], users: frozenset[int], file: _Step | None, bits: int) -> FileRefusal | None:
    """The first right of anybody else. file: the last step, the file itself; bits: of reading and writing it."""
    for step in steps:
        right = _too_wide(step, users, bits if step is file else _WRITE)
        if right is not None:
            where = "it" if step is file else f"{_kind(step)} {step.path}, on the way to it,"
            return FileRefusal(f"{where} {right.who}", _hint(step, right, is_read=bool(bits)))
    return None


def _hint(step: _Step, right: _Right, *, is_read: bool) -> str:
    """The remedy for this user. It never takes over a folder of others, which may be a home or a service's folder."""
    of_root = os.geteuid() == 0
    path = shlex.quote(step.path)
    if right.remedy is not None:
        by = "" if step.status.st_uid == os.geteuid() or of_root else f" by {_user(step.status.st_uid)}"
        first = "look at what it says; " if is_read else "write to a folder of your own, or "
        return f"{first}`{right.remedy} {path}`{by} takes the right away"
    if not is_read:
        return "write to a folder of your own"
    if stat.S_ISLNK(step.status.st_mode):
        taken = f", or look where it leads and take it with `chown -h root {path}`" if of_root else ""
        return f"name the file that it leads to{taken}"
    if of_root and not stat.S_ISDIR(step.status.st_mode):
        return f"look at what it says; `chown root {path}` takes the right away"
    return _COPY


_COPY = (
    "look at what it says, copy it to a folder of your own and name it there: an inventory with -i, "
    "a configuration file with VGPUCTL_CONFIG"
)


def _kind(step: _Step) -> str:
    return "the link" if stat.S_ISLNK(step.status.st_mode) else "the folder"


def _too_wide(step: _Step, users: frozenset[int], bits: int) -> _Right | None:
    """The right to a step that somebody else has; bits: of reading and writing that nobody else may have."""
    status, mode = step.status, stat.S_IMODE(step.status.st_mode)
    if status.st_uid not in users:
        return _Right(f"belongs to {_user(status.st_uid)}")
    if stat.S_ISLNK(status.st_mode) or stat.S_ISCHR(status.st_mode):
        return None
    if stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX:
        return None
    if stat.S_ISREG(status.st_mode) and not status.st_nlink:  # without a name nobody else can open it
        return None
    shown = f"(mode {mode:04o})"
    if mode & bits:
        return _Right(f"may be {_verb(mode & bits)} by every user {shown}", f"chmod o-{_letters(mode & bits)}")
    owning, listed = _groups(step)
    # Root gives a group the right to read a secret on purpose; PostgreSQL judges its key file by the same rule.
    found = owning & (bits if status.st_uid else bits & ~_READ)
    if found and not _has_only(status.st_gid, users):
        name = _group(status.st_gid)
        return _Right(f"may be {_verb(found)} by the group {name} {shown}", f"chmod g-{_letters(found)}")
    for tag, number, rights in listed:
        found = rights & bits
        is_user = tag == _ACL_USER
        if found and not (number in users if is_user else _has_only(number, users)):
            name = _user(number) if is_user else _group(number)
            of_whom = f"the {'user' if is_user else 'group'} {name}"
            return _Right(
                f"may be {_verb(found)} by {of_whom}, by its access control list",
                f"setfacl -x {'u' if is_user else 'g'}:{name}",
            )
    return None


def _groups(step: _Step) -> tuple[int, list[tuple[int, int, int]]]:
    """Rights of the owning group, and of whom an access control list names: tag, number of user or group, rights."""
    if not step.acl:
        return stat.S_IMODE(step.status.st_mode) >> 3 & 7, []
    entries = list(_ACL_ENTRY.iter_unpack(step.acl[_ACL_HEADER.size :]))
    mask = next((rights for tag, rights, _ in entries if tag == _ACL_MASK), 7)
    owning = next((rights for tag, rights, _ in entries if tag == _ACL_OWNING_GROUP), 0)
    listed = [(tag, number, rights & mask) for tag, rights, number in entries if tag in (_ACL_USER, _ACL_GROUP)]
    return owning & mask, listed


def _has_only(group: int, users: frozenset[int]) -> bool:
    """True if nobody but these users is in a group, as in the group of its own that a user has."""
    import grp
    import pwd

    try:
        named = set(grp.getgrgid(group).gr_mem)
    except KeyError:  # nobody knows who is in it
        return False
    everyone = pwd.getpwall()
    members = {one.pw_uid for one in everyone if one.pw_gid == group or one.pw_name in named}
    # A directory of users may list none of them, so that only a group that Debian itself keeps is empty for certain.
    is_known = bool(members) or group <= _LAST_STATIC_GROUP
    return is_known and members <= users and named <= {one.pw_name for one in everyone}


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    import grp

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _verb(bits: int) -> str:
    return "written to" if bits & _WRITE else "read"


def _letters(bits: int) -> str:
    return ("r" if bits & _READ else "") + ("w" if bits & _WRITE else "")
