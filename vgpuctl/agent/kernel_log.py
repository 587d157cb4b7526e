# SPDX-License-Identifier: Apache-2.0
"""The kernel's log since a moment, from /dev/kmsg; nothing where the log may not be read.

Kernel: Documentation/ABI/testing/dev-kmsg (one record a read, EPIPE when records were overwritten).
"""

import os
import re
from typing import List, Optional, Tuple

from vgpuctl.agent.wire.values import dataclass

_PREFIX = re.compile(r"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;]*;")
_LINE_BREAK = re.compile(r"\\x0a\s*(?:NVRM: )?")
_MICROSECONDS = 1_000_000
_RECORD_BYTES = 8192
_LINES_AT_MOST = 200
_WHOLE_LINES_AT_MOST = 50_000
# Bits of a record's first number that are its level; those above are its facility, 0 of the kernel itself.
_LEVEL_BITS = 3


@dataclass(frozen=True)
class KernelRecord:
    """One message. number: it has in the log, counted from the boot. at_s: seconds since the boot.

    is_kernels: the kernel said it, not a program of root's that wrote to /dev/kmsg.
    """

    number: int
    at_s: float
    is_kernels: bool
    text: str


class KernelLog:
    """A mark in the kernel's log, or with `whole` its oldest record; use it as a context manager."""

    def __init__(self, path: str, *, whole: bool = False) -> None:
        self.last = -1
        """The number of the last message that `numbered` looked at."""
        self._lines_at_most = _WHOLE_LINES_AT_MOST if whole else _LINES_AT_MOST
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_SET if whole else os.SEEK_END)
        except OSError:
            self._descriptor = -1

    def __enter__(self) -> "KernelLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the log."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def is_open(self) -> bool:
        """True if the log can be read."""
        return self._descriptor >= 0

    def lines(self) -> Tuple[str, ...]:
        """Return the kernel's messages since the mark, oldest first, and move the mark behind them."""
        return tuple(line for _, line in self.records())

    def records(self) -> Tuple[Tuple[float, str], ...]:
        """Return the kernel's messages since the mark, each with its time in seconds since the boot, and move the mark.

        Lines that programs wrote to /dev/kmsg are left out: the kernel did not write them.
        """
        found: List[Tuple[float, str]] = []
        for line in self._lines():
            one = _parse(line)
            if one is None:
                found.append((0.0, line))
            elif one.is_kernels:
                found.append((one.at_s, one.text))
        return tuple(found)

    def numbered(self, *, wanted: str) -> Tuple[Tuple[KernelRecord, ...], Optional[int]]:
        """Return the messages since the mark that have a text, and move the mark.

        Also the number of the first message that was looked at, None without any; that of the last one is in `last`.
        """
        found: List[KernelRecord] = []
        first: Optional[int] = None
        for line in self._lines():
            match = _PREFIX.match(line)
            if match is None:
                continue
            self.last = int(match[2])
            first = self.last if first is None else first
            # Most messages are of no interest: they cost no more than this.
            if wanted in line:
                one = _parse(line)
                found += [] if one is None else [one]
        return tuple(found), first

    def _lines(self) -> List[str]:
        """Return the lines since the mark. A read of /dev/kmsg is one message; a test's file may be cut anywhere."""
        found: List[str] = []
        rest = b""
        while self._descriptor >= 0 and len(found) < self._lines_at_most:
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BrokenPipeError:
                continue
            except OSError:
                break
            if not record:
                break
            *whole, rest = (rest + record).split(b"\n")
            found += [line.decode(errors="replace") for line in whole if line and not line.startswith(b" ")]
        if rest:
            found.append(rest.decode(errors="replace"))
        return found


def _parse(line: str) -> Optional[KernelRecord]:
    prefix = _PREFIX.match(line)
    if prefix is None:
        return None
    is_kernels = int(prefix[1]) >> _LEVEL_BITS == 0
    # One message of several lines is one record; the kernel writes its line breaks as `\x0a`.
    text = _LINE_BREAK.sub(" ", line[prefix.end() :])
    return KernelRecord(int(prefix[2]), int(prefix[3]) / _MICROSECONDS, is_kernels, text)
