# SPDX-License-Identifier: Apache-2.0
"""The agent's `Host` on a replayed capture: it answers every reading as the captured machine did, and takes no change.

A question that the capture has no answer to is a Problem `not-in-capture`, unless other answers imply it.
"""

import errno
import json
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from vgpuctl.agent.host import LOCK_TIMEOUT_S, Completed, Host
from vgpuctl.agent.kernel_log import KernelLog, KernelRecord
from vgpuctl.agent.wire import cdi
from vgpuctl.agent.wire.decode import from_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.memory import ACTIVE_POOLS, DEFINED_POOLS
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.recorded import PROBLEM, VALUE, AnswerPlayer, bytes_from_json, key_of
from vgpuctl_lab.simulated.machine.replayed_nvml import ReplayedNvml

CAPTURE = "capture.json"
_HINT = "record the host again with this vgpuctl"
_LARGEST_IMAGE = 1 << 40
_READS = ("read_optional", "listdir_optional", "link", "disk_link", "read_bytes", "digest", "stamp")


class ReplayedLog(KernelLog):
    """The kernel's log of a capture. records: of one search, with the numbers of the first and the last message."""

    def __init__(self, is_open: bool, records: Sequence[KernelRecord], first: int | None, last: int) -> None:
        self._was_open = is_open
        self._records = tuple(records)
        self._first = first
        self.last = last

    @property
    def is_open(self) -> bool:
        """True if it could be read."""
        return self._was_open

    def close(self) -> None:
        """Nothing is open."""

    def numbered(self, *, wanted: str) -> tuple[tuple[KernelRecord, ...], int | None]:
        """Return the messages that the capture has."""
        return tuple(one for one in self._records if wanted in one.text), self._first


_OF_THIS_VERSION = (cdi.FILE, cdi.STATE, ACTIVE_POOLS, DEFINED_POOLS)
"""Files that vgpuctl alone writes: one that recorded a host without asking for them had never written them. And the
pools, of which a capture tells nothing whose vgpuctl did not ask."""


class ReplayedHost(Host):
    """One captured machine, in the folder of a simulated host. machine: of the capture, where it is read already."""

    keeps_notes = False

    def __init__(self, folder: str, machine: dict[str, Any] | None = None) -> None:
        super().__init__(f"{folder}/root")
        if machine is None:
            machine = json.loads((Path(folder) / CAPTURE).read_bytes())["machine"]
        self._player = AnswerPlayer(machine["answers"])
        self._nvml: dict[str, Any] = machine["nvml"]
        self._was_emulated = bool(machine["is_emulated"])
        self._spent_at: float | None = None

    def read_optional(self, path: str) -> str | None:
        """Return a file's text, None for a missing file. Raises Problem as the machine did."""
        text: str | None = self._file("read_optional", path)
        return text

    def read_head(self, path: str, count: int) -> bytes:
        """Return the first bytes of a file. Raises Problem as the machine did."""
        return bytes_from_json(self._next(key_of("read_head", [path, count]), path))

    def read_bytes(self, path: str) -> bytes | None:
        """Return a file's bytes, None for a missing file."""
        found = self._file("read_bytes", path)
        return None if found is None else bytes_from_json(found)

    def digest(self, path: str) -> str | None:
        """Return a file's digest, None for a missing file."""
        found: str | None = self._file("digest", path)
        return found

    def read_tail(self, path: str, size: int = 1 << 18) -> str:
        """Return the end of a file, nothing where the capture has none."""
        key = key_of("read_tail", path)
        return str(self._next(key, path)) if self._player.has(key) else ""

    def open_image(self, path: str) -> BinaryIO:
        """Open a file of the captured size that begins as the captured one. Raises OSError."""
        key = key_of("open_image", path)
        known: dict[str, Any] = self._next(key, path) if self._player.has(key) else {"errno": errno.ENOENT}
        if "errno" in known:
            raise OSError(int(known["errno"]), os.strerror(int(known["errno"])))
        file = os.fdopen(os.memfd_create("image"), "w+b")
        file.write(bytes_from_json(known["head"]))
        file.truncate(min(int(known["size"]), _LARGEST_IMAGE))
        file.seek(0)
        return file

    def listdir_optional(self, path: str) -> list[str] | None:
        """Return a folder's names, None for a missing folder."""
        names: list[str] | None = self._file("listdir_optional", path)
        return names

    def exists(self, path: str) -> bool:
        """Tell whether a path leads somewhere."""
        key = key_of("exists", path)
        if self._player.has(key):
            return bool(self._next(key, path))
        known = self._is_there(path)
        if known is None:
            raise self._missing(key, path)
        return known

    def read_attribute(self, path: str, name: str) -> str | None:
        """Return an extended attribute, None where the file has none."""
        value: str | None = self._next(key_of("read_attribute", [path, name]), path)
        return value

    def link(self, path: str) -> str | None:
        """Return the text of a link, None when there is none."""
        target: str | None = self._file("link", path)
        return target

    def disk_link(self, path: str) -> str | None:
        """Return the text of a link of the disk, None when there is none."""
        target: str | None = self._file("disk_link", path)
        return target

    def real_path(self, path: str) -> str:
        """Return where a path leads."""
        return str(self._next(key_of("real_path", path), path))

    def image_real_path(self, path: str) -> str:
        """Return where a path of the disk leads."""
        return str(self._next(key_of("image_real_path", path), path))

    def stamp(self, path: str) -> tuple[int, int, int] | None:
        """Return the mark of a file's content, None where there is none."""
        found = self._file("stamp", path)
        return None if found is None else (int(found[0]), int(found[1]), int(found[2]))

    def space(self, path: str) -> tuple[str, int, int]:
        """Return the place, size and free bytes of a file system. Raises Problem as the machine did."""
        place, total, available = self._next(key_of("space", path), path)
        return str(place), int(total), int(available)

    def allocated(self, what: str, paths: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Return nothing: a capture names no files of VMs."""
        return {}

    def owner_of(self, path: str) -> int | None:
        """Return the owner of a file, None where there is none."""
        owner: int | None = self._file("owner_of", path)
        return owner

    def user_id(self, name: str) -> int:
        """Return the id of a user. Raises Problem `no-such-user`."""
        return int(self._next(key_of("user_id", name), name))

    def process_links(self, pids: Sequence[int] | None = None) -> tuple[list[tuple[int, str]], int]:
        """Return the open nodes of devices by process, and how many processes were hidden."""
        key = key_of("process_links", [None if pids is None else list(pids)])
        if not self._player.has(key):
            key = key_of("process_links", [None])
        links, unreadable = self._next(key, "/proc")
        found = [(int(pid), str(target)) for pid, target in links]
        return [one for one in found if pids is None or one[0] in pids], int(unreadable)

    def find_program(self, name: str) -> str | None:
        """Return where a program was, None where it was not."""
        path: str | None = self._next(key_of("find_program", name), name)
        return path

    def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
        """Return what a program printed. Raises Problem, for every program that would change something."""
        if changes:
            raise _read_only()
        status, output, errors = self._next(key_of("run", list(argv)), argv[0])
        return Completed(int(status), str(output), str(errors))

    def nvml(self) -> ReplayedNvml:
        """Return the machine's NVML. Raises Problem `nvml-missing` where it had none."""
        self._next("nvml", "NVML")
        return ReplayedNvml(self._nvml)

    def is_emulated(self) -> bool:
        """Tell whether the captured machine's GPUs were emulated."""
        return self._was_emulated

    def python(self) -> str:
        """Return the version of the Python that ran the agent."""
        return str(self._next("python", "python"))

    def is_root(self) -> bool:
        """Tell whether the agent was root; what nobody asked for was not needed."""
        return not self._player.has("is_root") or bool(self._next("is_root", "is_root"))

    def monotonic(self) -> float:
        """Return the captured clock, which goes on by ours after its last reading."""
        if not self._player.has("monotonic"):
            # The clock only says how old things are: a capture without it is as good with ours.
            return time.monotonic()
        if not self._player.is_spent("monotonic"):
            self._last_s = float(self._next("monotonic", "clock"))
            self._spent_at = time.monotonic()
            return self._last_s
        return self._last_s + time.monotonic() - (self._spent_at or 0.0)

    def uptime(self) -> float:
        """Return the captured time since the boot."""
        return float(self._next("uptime", "clock"))

    def cpu_seconds(self) -> float:
        """Return the captured CPU time."""
        return float(self._next("cpu_seconds", "clock"))

    def clock_ticks(self) -> int:
        """Return the captured ticks of a second."""
        return int(self._next("clock_ticks", "clock"))

    def wait(self, seconds: float) -> None:
        """Wait for nothing: the answers are there."""
        if self.stopping.is_set():
            super().wait(0)

    def lock(self, timeout_s: float = LOCK_TIMEOUT_S) -> AbstractContextManager[None]:
        """Refuse every change. Raises Problem."""
        raise _read_only()

    def write_text(self, path: str, text: str) -> None:
        """Refuse to write. Raises OSError."""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def echo(self, remotes: Sequence[str], sizes: Sequence[int], *, timeout_s: float) -> dict[str, int]:
        """Return what each address answered."""
        found: dict[str, int] = self._next(key_of("echo", [list(remotes), list(sizes)]), "echo requests")
        return found

    def probe_tunnels(self, remotes: Sequence[str], kind: str, port: int) -> dict[str, str]:
        """Refuse: a recording sends no packets through tunnels. Raises Problem."""
        raise self._missing("probe_tunnels", "tunnels")

    def numbered_log(self, *, after: int) -> KernelLog:
        """Return the kernel's log as it was searched."""
        key = self._player.first_key(key_of("numbered_log", "")) or "numbered_log"
        is_open, records, first, last = self._next(key, "/dev/kmsg")
        return ReplayedLog(is_open, [KernelRecord(*one) for one in records], first, last)

    def whole_kernel_log(self) -> tuple[str, ...]:
        """Return the captured lines of the kernel's log."""
        return tuple(self._next("whole_kernel_log", "/dev/kmsg"))

    def kernel_records(self) -> tuple[tuple[float, str], ...] | None:
        """Return them with their times; None where they were hidden."""
        found = self._next("kernel_records", "/dev/kmsg")
        return None if found is None else tuple((float(at_s), str(text)) for at_s, text in found)

    def _file(self, method: str, path: str) -> Any:
        """Return the answer about a file; None where the capture says that it is not there. Raises Problem."""
        key = key_of(method, path)
        if self._player.has(key):
            return self._next(key, path)
        if self._is_there(path) is False:
            return None
        raise self._missing(key, path)

    def _next(self, key: str, path: str) -> Any:
        if not self._player.has(key):
            raise self._missing(key, path)
        answer = self._player.next(key)
        if PROBLEM in answer:
            raise from_json(Problem, answer[PROBLEM])
        return answer.get(VALUE)

    def _is_there(self, path: str) -> bool | None:
        """Tell whether a path was there, by the answers about it and about the folders above; None if none says it."""
        for method in _READS:
            key = key_of(method, path)
            if self._player.has(key):
                answer = self._player.next(key)
                return True if PROBLEM in answer else answer.get(VALUE) is not None
        folder, _, name = path.rpartition("/")
        if not folder:
            return None
        key = key_of("listdir_optional", folder)
        if self._player.has(key):
            names = self._player.next(key).get(VALUE)
            return None if names is not None and name in names else False
        # A folder that was not there has nothing in it.
        return False if path in _OF_THIS_VERSION or self._is_there(folder) is False else None

    def _missing(self, key: str, path: str) -> Problem:
        return Problem(ProblemCode.NOT_IN_CAPTURE, f"not in this capture: {key}", path=path, hint=_HINT)


def _read_only() -> Problem:
    return Problem(
        ProblemCode.NOT_IN_CAPTURE,
        "this host replays a capture: it answers readings and takes no change",
        hint="`vgpuctl lab up --simulated 1 --mix BOARD` gives a host that takes changes",
    )


def read_libvirt(folder: Path) -> dict[str, str | None] | None:
    """Return what the captured machine's libvirt said; None for a host that replays none."""
    try:
        found: dict[str, str | None] = json.loads((folder / CAPTURE).read_bytes())["libvirt"]
    except FileNotFoundError:
        return None
    return found
