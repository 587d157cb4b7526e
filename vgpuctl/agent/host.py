# SPDX-License-Identifier: Apache-2.0
"""The machine: the only file that reads, writes or runs anything on it. Its root may be a test's folder.

`facts` interprets the texts; `changes` decides what may be written.
"""

import errno as errnos
import os
import stat
import sys
import threading
import time
from typing import Any, BinaryIO, ContextManager, Dict, List, Optional, Sequence, Set, Tuple

from vgpuctl.agent import time_limits
from vgpuctl.agent.file_problems import errno_name, put_problem, read_problem, write_blocked
from vgpuctl.agent.kernel_log import KernelLog
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import dataclass

LOCK_TIMEOUT_S = 30.0
# Longer than sriov_numvfs of a whole card or a reset takes, shorter than the operator's machine waits for the steps.
WRITE_TIMEOUT_S = 120.0
PROGRAM_FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/libexec")


@dataclass(frozen=True)
class Completed:
    """A program that ended: its exit status and what it printed."""

    status: int
    output: str
    errors: str


class Host:
    """One machine under `root`.

    writes: how often this process has tried to write to the machine. versions: of programs, by path, as asked once.
    stopping: set from outside to end every wait early. write_timeout_s: how long one write may block in the kernel.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = os.path.abspath(root)
        self.writes = 0
        self.versions: Dict[str, str] = {}
        self.write_timeout_s = WRITE_TIMEOUT_S
        self._blocked: Set[str] = set()
        self.stopping = threading.Event()

    # Reading

    def read(self, path: str) -> str:
        """Return a file's text without the newline at its end. Raises Problem, `not-found` when it is missing."""
        text = self.read_optional(path)
        if text is None:
            raise Problem(ProblemCode.NOT_FOUND, f"{path} does not exist", path=path, errno="ENOENT")
        return text

    def read_optional(self, path: str) -> Optional[str]:
        """Return a file's text without the newline at its end, None for a missing file."""
        try:
            with open(self.path(path), "rb") as file:
                return file.read().decode(errors="replace").rstrip("\n")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise read_problem(path, error) from error

    @staticmethod
    def unreadable(path: str, error: OSError) -> Problem:
        """Return the problem of a failed read."""
        return read_problem(path, error)

    def listdir(self, path: str) -> List[str]:
        """Return a folder's names in order. Raises Problem, `not-found` when it is missing."""
        names = self.listdir_optional(path)
        if names is None:
            raise Problem(ProblemCode.NOT_FOUND, f"{path} does not exist", path=path, errno="ENOENT")
        return names

    def listdir_optional(self, path: str) -> Optional[List[str]]:
        """Return a folder's names in order, None for a missing folder."""
        try:
            return sorted(os.listdir(self.path(path)))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise read_problem(path, error) from error

    def exists(self, path: str) -> bool:
        """Tell whether a path leads somewhere; links are followed."""
        return os.path.exists(self.path(path))

    def read_attribute(self, path: str, name: str) -> Optional[str]:
        """Return an extended attribute as text, None where the file has none. Raises Problem `unreadable`."""
        try:
            return os.getxattr(self.path(path), name).rstrip(b"\0").decode(errors="replace")
        except OSError as error:
            if error.errno in (errnos.ENODATA, errnos.ENOTSUP, errnos.ENOENT):
                return None
            raise read_problem(path, error) from error

    def link(self, path: str) -> Optional[str]:
        """Return the text of a symbolic link, None when there is none."""
        try:
            return os.readlink(self.path(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errnos.EINVAL:
                return None
            raise read_problem(path, error) from error

    def link_name(self, path: str) -> Optional[str]:
        """Return the last component a symbolic link names (the driver, the group), None when there is none."""
        target = self.link(path)
        return None if target is None else os.path.basename(target)

    def real_path(self, path: str) -> str:
        """Return where a path leads when all its links are followed, as seen on the machine."""
        return self.image_real_path(path)

    def process_links(self) -> Tuple[List[Tuple[int, str]], int]:
        """Return (pid, open file) of every process but the agent, and how many could not be looked into.

        The agent has a card's node open itself while it uses NVML.
        """
        found: List[Tuple[int, str]] = []
        unreadable = 0
        own = str(os.getpid()) if self.root == "/" else ""
        for name in self.listdir("/proc"):
            if not name.isdigit() or name == own:
                continue
            folder = self.path(f"/proc/{name}/fd")
            try:
                numbers = os.listdir(folder)
            except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
                continue
            except OSError:
                unreadable += 1
                continue
            for number in numbers:
                try:
                    found.append((int(name), os.readlink(f"{folder}/{number}")))
                except OSError:
                    continue
        return found, unreadable

    def is_root(self) -> bool:
        """Tell whether the agent may change the machine."""
        return os.geteuid() == 0

    def now(self) -> float:
        """Return the seconds since the epoch by the machine's clock."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds of a clock that nobody sets, from a start of its own."""
        return time.monotonic()

    def python(self) -> str:
        """Return the version of the Python that runs the agent."""
        return ".".join(str(part) for part in sys.version_info[:3])

    def nvml(self) -> Any:
        """Return the machine's NVML, not yet initialised: pynvml's functions, structs and errors by their names.

        Raises Problem `nvml-missing`. A simulated machine answers here.
        """
        if self.root != "/":
            raise Problem(ProblemCode.NVML_MISSING, "NVML is not used under another root")
        # pynvml looks in the same place; it is large, so it waits for the library.
        import ctypes

        try:
            ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            raise Problem(ProblemCode.NVML_MISSING, "NVML cannot be used: NVML Shared Library Not Found") from None
        import pynvml

        return pynvml

    # Changing

    def write(self, path: str, text: str) -> None:
        """Write `text` to an existing file, in one go as sysfs wants it.

        Raises Problem with the errno; `write-blocked` when it has not ended after write_timeout_s: it may still take
        effect, and later writes to the same file are refused.
        """
        if path in self._blocked:
            raise write_blocked(path, text, self.write_timeout_s)
        self.writes += 1
        try:
            time_limits.call_within(self.write_timeout_s, lambda: self.write_text(path, text))
        except time_limits.StillRunning as error:
            self._blocked.add(path)
            raise write_blocked(path, text, self.write_timeout_s) from error
        except OSError as error:
            name = errno_name(error)
            code = (
                ProblemCode.NOT_FOUND
                if error.errno == errnos.ENOENT and not self.exists(path)
                else ProblemCode.WRITE_REFUSED
            )
            raise Problem(
                code, f"writing {text!r} to {path} failed: {name} ({error.strerror})", path=path, errno=name
            ) from error

    def write_text(self, path: str, text: str) -> None:
        """Hand the text to the kernel. Raises OSError; a simulated machine answers here."""
        descriptor = os.open(self.path(path), os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def read_bytes(self, path: str) -> Optional[bytes]:
        """Return a file's bytes from the disk, None for a missing file."""
        try:
            with open(self.path(path), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise read_problem(path, error) from error

    def open_image(self, path: str) -> BinaryIO:
        """Open a regular file or block device of the disk for reading. Raises OSError, Problem `not-an-image`."""
        # O_NONBLOCK: the open of a pipe must not wait for a writer.
        descriptor = os.open(self.path(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            os.close(descriptor)
            raise Problem(ProblemCode.NOT_AN_IMAGE, f"{path} is neither a file nor a block device", path=path)
        return os.fdopen(descriptor, "rb")

    def image_real_path(self, path: str) -> str:
        """Return where a path of the disk leads when all its links are followed, as seen on the machine."""
        real = os.path.realpath(self.path(path))
        return "/" + os.path.relpath(real, self.root).lstrip("/") if self.root != "/" else real

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
            raise put_problem(path, error) from error

    def user_id(self, name: str) -> int:
        """Return the id of a user of the machine. Raises Problem `no-such-user`."""
        import pwd

        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            raise Problem(ProblemCode.NO_SUCH_USER, f"this host has no user {name}") from None

    def owner_of(self, path: str) -> Optional[int]:
        """Return the user id that owns a file of the disk, None where there is none."""
        try:
            return os.stat(self.path(path)).st_uid
        except OSError:
            return None

    def give(self, descriptor: int, path: str, owner: int) -> None:
        """Give an open file to a user. Raises OSError; a simulated machine answers here."""
        if owner:
            os.fchown(descriptor, owner, -1)

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
            raise put_problem(path, error) from error

    def remove_file(self, path: str) -> bool:
        """Remove a file of the disk. Returns whether it was there. Raises Problem."""
        try:
            os.unlink(self.path(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise put_problem(path, error) from error
        self.writes += 1
        return True

    def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
        """Run a program to its end; `changes` counts it as a write. At time-out its whole process group is ended.

        Raises Problem: `program-missing`, `program-timed-out`.
        """
        program = self.find_program(argv[0])
        if program is None:
            raise Problem(ProblemCode.PROGRAM_MISSING, f"the program {argv[0]} is not on this host", path=argv[0])
        if changes:
            self.writes += 1
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        if self.root != "/":
            environment["VGPUCTL_ROOT"] = self.root
        try:
            status, output, errors = time_limits.run_group(
                [program, *argv[1:]], timeout_s=timeout_s, environment=environment
            )
        except time_limits.StillRunning as error:
            left = "it and its children were ended" if error.is_ended else "part of it still runs and cannot be ended"
            message = f"{' '.join(argv)} did not end within {timeout_s:g} s; {left}"
            raise Problem(ProblemCode.PROGRAM_TIMED_OUT, message, path=argv[0]) from error
        except OSError as error:
            raise Problem(
                ProblemCode.PROGRAM_MISSING,
                f"{argv[0]} cannot be run: {error.strerror}",
                path=argv[0],
                errno=errno_name(error),
            ) from error
        return Completed(status, output.decode(errors="replace"), errors.decode(errors="replace"))

    def find_program(self, name: str) -> Optional[str]:
        """Return the path to run for a program's name or absolute path, None when it is not there."""
        if name.startswith("/"):
            path = self.path(name)
            return path if os.access(path, os.X_OK) else None
        folders = [self.path(folder) for folder in PROGRAM_FOLDERS]
        if self.root == "/":
            folders = [*os.environ.get("PATH", "").split(os.pathsep), *folders]
        paths = (f"{folder}/{name}" for folder in folders if folder)
        return next((path for path in paths if os.access(path, os.X_OK) and not os.path.isdir(path)), None)

    def lock(self, timeout_s: float = LOCK_TIMEOUT_S) -> "ContextManager[None]":
        """Hold the host's lock for changes. Raises Problem `host-locked` with the holder's pid, `lock-refused`."""
        from vgpuctl.agent import host_lock

        folder = self.path(host_lock.FOLDER)
        return host_lock.hold(folder, timeout_s, wait=self.wait, is_root=self.is_root())

    def wait(self, seconds: float) -> None:
        """Let time pass. Raises Problem `interrupted` as soon as the other side is gone."""
        if self.stopping.wait(seconds):
            raise Problem(ProblemCode.INTERRUPTED, "the connection closed while the agent was waiting")

    def echo(self, remotes: Sequence[str], sizes: Sequence[int], *, timeout_s: float) -> Dict[str, int]:
        """Return the largest unfragmented packet of `sizes` that each address answers, 0 for none.

        A simulated machine answers here.
        """
        from vgpuctl.agent.echo import ask

        return ask(remotes, sizes, timeout_s=timeout_s)

    def probe_tunnels(self, remotes: Sequence[str], kind: str, port: int) -> Dict[str, str]:
        """Send each address a few packets as a tunnel has them. Returns why, for those that were refused.

        A simulated machine answers here.
        """
        from vgpuctl.agent.tunnel_probe import send

        return send(remotes, kind, port)

    def kernel_log(self) -> KernelLog:
        """Mark the kernel's log now, to read later what it said since."""
        return KernelLog(self.path("/dev/kmsg"))

    def whole_kernel_log(self) -> Tuple[str, ...]:
        """Return what the kernel said since the boot, as far back as its buffer goes; nothing where it is hidden."""
        with KernelLog(self.path("/dev/kmsg"), whole=True) as log:
            return log.lines()

    def read_tail(self, path: str, size: int = 1 << 18) -> str:
        """Return the end of a file that may be large, nothing where it cannot be read."""
        try:
            with open(self.path(path), "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - size))
                return file.read(size).decode(errors="replace")
        except OSError:
            return ""

    def path(self, path: str) -> str:
        """Return where a path of the machine lies on this one."""
        return path if self.root == "/" else self.root + path


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
