# SPDX-License-Identifier: Apache-2.0
"""The kernel's files: sysfs and /proc. Each is read as text; a write to one may be refused, or block."""

import errno as errnos
import os
import zlib
from typing import List, Optional, Sequence, Set, Tuple

from vgpuctl.agent import time_limits
from vgpuctl.agent.file_problems import errno_name, read_problem, write_blocked
from vgpuctl.agent.machine_root import MachineRoot
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

# Longer than sriov_numvfs of a whole card or a reset takes, shorter than the operator's machine waits for the steps.
WRITE_TIMEOUT_S = 120.0
LARGEST_TEXT_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"


class KernelFiles(MachineRoot):
    """The files of the kernel under a root. write_timeout_s: how long one write may block in the kernel."""

    def __init__(self, root: str = "/") -> None:
        super().__init__(root)
        self.write_timeout_s = WRITE_TIMEOUT_S
        self._blocked: Set[str] = set()

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

    def read_head(self, path: str, count: int) -> bytes:
        """Return the first bytes of a binary file. Raises Problem `unreadable`, also for a missing file."""
        try:
            with open(self.path(path), "rb", buffering=0) as file:
                # One read of a file of sysfs gives one page at most.
                found = b""
                while len(found) < count and (part := file.read(count - len(found))):
                    found += part
                return found
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

    def process_links(self, pids: Optional[Sequence[int]] = None) -> Tuple[List[Tuple[int, str]], int]:
        """Return (pid, open file) of every process but the agent, and how many could not be looked into.

        The agent has a card's node open itself while it uses NVML. pids: look into these processes alone.
        """
        found: List[Tuple[int, str]] = []
        unreadable = 0
        own = str(os.getpid()) if self.root == "/" else ""
        for name in self.listdir("/proc") if pids is None else map(str, pids):
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


def unpacked(data: bytes) -> str:
    """Return the start of a text that may be packed by gzip, as /proc/config.gz is; a damaged one is empty."""
    if data.startswith(_GZIP):
        try:
            data = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, LARGEST_TEXT_BYTES)
        except zlib.error:
            data = b""
    return data.decode(errors="replace")
