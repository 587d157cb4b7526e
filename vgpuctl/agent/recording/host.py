# SPDX-License-Identifier: Apache-2.0
"""The agent's `Host` with every reading noted: files, folders, links, programs, NVML, the kernel's log.

It answers as the host that it was made of. Nothing is written: no lock is taken and no note is kept.
"""

import base64
import json
import os
import zlib
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar, Union

from vgpuctl.agent.host import Completed, Host
from vgpuctl.agent.kernel_log import KernelLog, KernelRecord
from vgpuctl.agent.recording.nvml import RecordedNvml
from vgpuctl.agent.recording.texts import (
    is_wanted_line,
    keep_of_file,
    keep_of_head,
    keep_of_kernel_line,
    keep_of_links,
    keep_of_program,
)
from vgpuctl.agent.wire.decode import to_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.recorded import PROBLEM, VALUE, AnswerLog, bytes_to_json, key_of

T = TypeVar("T")
_LINES_AT_MOST = 5000
# The header of QCOW2 with its features; names of other files come behind it.
_HEAD_BYTES = 80


class RecordedLog(KernelLog):
    """The kernel's log of a recorded host; it notes what `numbered` finds."""

    def __init__(self, log: KernelLog, note: Callable[[str, object], None]) -> None:
        self._source = log
        self._note = note
        self.last = log.last

    @property
    def is_open(self) -> bool:
        """True if the log can be read."""
        return self._source.is_open

    def close(self) -> None:
        """Let go of the log."""
        self._source.close()

    def numbered(self, *, wanted: str) -> Tuple[Tuple[KernelRecord, ...], Optional[int]]:
        """Return the messages since the mark that have a text, and note them."""
        records, first = self._source.numbered(wanted=wanted)
        self.last = self._source.last
        kept = [[one.number, one.at_s, one.is_kernels, keep_of_kernel_line(one.text)] for one in records]
        self._note(key_of("numbered_log", wanted), [self.is_open, kept[-_LINES_AT_MOST:], first, self.last])
        return records, first


class RecordingHost(Host):
    """A host that notes what is read of it. Make it with `recording_of`."""

    log: AnswerLog
    nvml_log: AnswerLog
    constants: Dict[str, Any]
    errors: Dict[str, str]
    keeps_notes = False

    def packed(self) -> str:
        """Return everything that was noted: JSON, compressed, in Base64."""
        noted = {
            "is_emulated": self.is_emulated(),
            "answers": self.log.answers,
            "nvml": {"constants": self.constants, "errors": self.errors, "answers": self.nvml_log.answers},
        }
        # Names of files need not be UTF-8.
        text = json.dumps(noted, separators=(",", ":"), ensure_ascii=False)
        return base64.b64encode(zlib.compress(text.encode(errors="replace"), 9)).decode()

    def read_optional(self, path: str) -> Optional[str]:
        """Read and note a file."""
        ask = super().read_optional
        return self._noted("read_optional", path, lambda: ask(path), lambda text: _kept(path, text))

    def read_head(self, path: str, count: int) -> bytes:
        """Read and note the first bytes of a file."""
        ask = super().read_head
        return self._noted(
            "read_head", [path, count], lambda: ask(path, count), lambda data: bytes_to_json(keep_of_head(path, data))
        )

    def read_bytes(self, path: str) -> Optional[bytes]:
        """Read and note a file's bytes."""
        ask = super().read_bytes

        def kept(data: Optional[bytes]) -> object:
            return None if data is None else bytes_to_json((_kept(path, data.decode(errors="replace")) or "").encode())

        return self._noted("read_bytes", path, lambda: ask(path), kept)

    def read_tail(self, path: str, size: int = 1 << 18) -> str:
        """Read and note the end of a file."""
        ask = super().read_tail
        return self._noted("read_tail", path, lambda: ask(path, size), lambda text: _kept(path, text))

    def open_image(self, path: str) -> BinaryIO:
        """Open a file of the disk, and note its size and its first bytes."""
        ask = super().open_image

        def opened() -> "Union[BinaryIO, OSError]":
            try:
                return ask(path)
            except OSError as error:
                return error

        def kept(found: "Union[BinaryIO, OSError]") -> object:
            if isinstance(found, OSError):
                return {"errno": found.errno}
            head, size = found.read(_HEAD_BYTES), found.seek(0, os.SEEK_END)
            found.seek(0)
            return {"size": size, "head": bytes_to_json(head)}

        found = self._noted("open_image", path, opened, kept)
        if isinstance(found, OSError):
            raise found
        return found

    def listdir_optional(self, path: str) -> Optional[List[str]]:
        """List and note a folder; processes in /proc are left out."""
        ask = super().listdir_optional

        def kept(names: Optional[List[str]]) -> object:
            return [one for one in names if not one.isdigit()] if names and path == "/proc" else names

        return self._noted("listdir_optional", path, lambda: ask(path), kept)

    def exists(self, path: str) -> bool:
        """Look for a path and note the answer."""
        ask = super().exists
        return self._noted("exists", path, lambda: ask(path))

    def read_attribute(self, path: str, name: str) -> Optional[str]:
        """Read and note an extended attribute."""
        ask = super().read_attribute
        return self._noted("read_attribute", [path, name], lambda: ask(path, name))

    def link(self, path: str) -> Optional[str]:
        """Read and note a link."""
        ask = super().link
        return self._noted("link", path, lambda: ask(path))

    def disk_link(self, path: str) -> Optional[str]:
        """Read and note a link of the disk."""
        ask = super().disk_link
        return self._noted("disk_link", path, lambda: ask(path))

    def real_path(self, path: str) -> str:
        """Follow a path and note where it leads."""
        ask = super().real_path
        return self._noted("real_path", path, lambda: ask(path))

    def image_real_path(self, path: str) -> str:
        """Follow a path of the disk and note where it leads."""
        ask = super().image_real_path
        return self._noted("image_real_path", path, lambda: ask(path))

    def digest(self, path: str) -> Optional[str]:
        """Digest a file and note the digest, not the file."""
        ask = super().digest
        return self._noted("digest", path, lambda: ask(path))

    def stamp(self, path: str) -> Optional[Tuple[int, int, int]]:
        """Read and note the mark of a file's content."""
        ask = super().stamp
        return self._noted("stamp", path, lambda: ask(path))

    def space(self, path: str) -> Tuple[str, int, int]:
        """Read and note the room of a file system."""
        ask = super().space
        return self._noted("space", path, lambda: ask(path))

    def allocated(self, what: str, paths: Sequence[str]) -> Dict[str, Tuple[str, int]]:
        """Read what files take, and note nothing of it: they are named after VMs."""
        ask = super().allocated
        return self._noted("allocated", None, lambda: ask(what, paths), lambda _found: {})

    def owner_of(self, path: str) -> Optional[int]:
        """Read and note the owner of a file."""
        ask = super().owner_of
        return self._noted("owner_of", path, lambda: ask(path))

    def user_id(self, name: str) -> int:
        """Ask for the id of a user and note it."""
        ask = super().user_id
        return self._noted("user_id", name, lambda: ask(name))

    def process_links(self, pids: Optional[Sequence[int]] = None) -> Tuple[List[Tuple[int, str]], int]:
        """Read the open files of processes, and note those that are nodes of devices."""
        ask = super().process_links
        asked = None if pids is None else list(pids)
        return self._noted(
            "process_links", [asked], lambda: ask(pids), lambda found: [keep_of_links(found[0]), found[1]]
        )

    def find_program(self, name: str) -> Optional[str]:
        """Look for a program and note where it is."""
        ask = super().find_program
        return self._noted("find_program", name, lambda: ask(name))

    def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
        """Run a program that only reads, and note what it printed."""
        ask = super().run

        def kept(done: Completed) -> object:
            return [done.status, keep_of_program(argv, done.output), done.errors]

        return self._noted("run", list(argv), lambda: ask(argv, timeout_s=timeout_s), kept)

    def nvml(self) -> Any:
        """Open NVML and note each of its answers."""
        ask = super().nvml
        library = self._noted("nvml", None, ask, lambda _library: True)
        return RecordedNvml(library, self.nvml_log, self.constants, self.errors)

    def python(self) -> str:
        """Note the agent's Python."""
        ask = super().python
        return self._noted("python", None, ask)

    def is_root(self) -> bool:
        """Note whether the agent is root."""
        ask = super().is_root
        return self._noted("is_root", None, ask)

    def uptime(self) -> float:
        """Note the time since the boot."""
        ask = super().uptime
        return self._noted("uptime", None, ask)

    def clock_ticks(self) -> int:
        """Note the ticks of a second."""
        ask = super().clock_ticks
        return self._noted("clock_ticks", None, ask)

    def cpu_seconds(self) -> float:
        """Note the CPU time of the agent."""
        ask = super().cpu_seconds
        return self._noted("cpu_seconds", None, ask)

    def monotonic(self) -> float:
        """Note the clock that nobody sets."""
        ask = super().monotonic
        return self._noted("monotonic", None, ask)

    def echo(self, remotes: Sequence[str], sizes: Sequence[int], *, timeout_s: float) -> Dict[str, int]:
        """Note what each address answered to an echo request."""
        ask = super().echo
        return self._noted("echo", [list(remotes), list(sizes)], lambda: ask(remotes, sizes, timeout_s=timeout_s))

    def numbered_log(self, *, after: int) -> KernelLog:
        """Return the kernel's log, noting what is found in it."""
        return RecordedLog(super().numbered_log(after=after), lambda key, value: self.log.add(key, {VALUE: value}))

    def whole_kernel_log(self) -> Tuple[str, ...]:
        """Read the kernel's log, and note the lines that the agent can find something in."""
        ask = super().whole_kernel_log

        def kept(lines: Tuple[str, ...]) -> object:
            return [keep_of_kernel_line(line) for line in lines if is_wanted_line(line)][-_LINES_AT_MOST:]

        return self._noted("whole_kernel_log", None, ask, kept)

    def kernel_records(self) -> Optional[Tuple[Tuple[float, str], ...]]:
        """Read the kernel's log with its times; of the first message only the time is noted."""
        ask = super().kernel_records

        def kept(records: Optional[Tuple[Tuple[float, str], ...]]) -> object:
            if not records:
                return records
            wanted = [[at_s, keep_of_kernel_line(line)] for at_s, line in records if is_wanted_line(line)]
            return [[records[0][0], ""], *wanted[-_LINES_AT_MOST:]]

        return self._noted("kernel_records", None, ask, kept)

    def _noted(
        self, method: str, argument: object, read: Callable[[], T], kept: "Optional[Callable[[T], object]]" = None
    ) -> T:
        """Read, note the answer or the refusal, and give it on. kept: the form in which it is noted."""
        key = key_of(method, argument)
        try:
            value = read()
        except Problem as problem:
            self.log.add(key, {PROBLEM: to_json(problem)})
            raise
        self.log.add(key, {VALUE: value if kept is None else kept(value)})
        return value


def recording_of(host: Host) -> RecordingHost:
    """Return a second door to the same machine, which notes what is read through it."""
    kind = type("RecordingOfHost", (RecordingHost, type(host)), {})
    made: RecordingHost = object.__new__(kind)
    vars(made).update(vars(host))
    made.log, made.nvml_log, made.constants, made.errors = AnswerLog(), AnswerLog(), {}, {}
    made.versions, made._log = {}, None
    return made


def _kept(path: str, text: Optional[str]) -> Optional[str]:
    return None if text is None else keep_of_file(path, text)
