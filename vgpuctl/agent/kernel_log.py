# SPDX-License-Identifier: Apache-2.0
"""The kernel's log since a moment, from /dev/kmsg; nothing where the log may not be read.

Kernel: Documentation/ABI/testing/dev-kmsg (one record a read, EPIPE when records were overwritten).
"""

import os
import re
from typing import List, Tuple

_PREFIX = re.compile(r"\d+,\d+,(\d+),[^;]*;")
_MICROSECONDS = 1_000_000
_RECORD_BYTES = 8192
_LINES_AT_MOST = 200
_WHOLE_LINES_AT_MOST = 50_000


class KernelLog:
    """A mark in the kernel's log, or with `whole` its oldest record; use it as a context manager."""

    def __init__(self, path: str, *, whole: bool = False) -> None:
        self._lines_at_most = _WHOLE_LINES_AT_MOST if whole else _LINES_AT_MOST
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_SET if whole else os.SEEK_END)
        except OSError:
            self._descriptor = -1

    def __enter__(self) -> "KernelLog":
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def is_open(self) -> bool:
        """True if the log can be read."""
        return self._descriptor >= 0

    def lines(self) -> Tuple[str, ...]:
        """Return the messages since the mark, oldest first, and move the mark behind them."""
        return tuple(line for _, line in self.records())

    def records(self) -> Tuple[Tuple[float, str], ...]:
        """Return the messages since the mark, each with its time in seconds since the boot, and move the mark."""
        found: List[Tuple[float, str]] = []
        while self._descriptor >= 0 and len(found) < self._lines_at_most:
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BrokenPipeError:
                continue
            except OSError:
                break
            if not record:
                break
            for line in record.decode(errors="replace").splitlines():
                if line and not line.startswith(" "):
                    prefix = _PREFIX.match(line)
                    at_s = int(prefix[1]) / _MICROSECONDS if prefix else 0.0
                    found.append((at_s, line[prefix.end() :] if prefix else line))
        return tuple(found)
