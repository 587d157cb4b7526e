# SPDX-License-Identifier: Apache-2.0
"""Structured logging: one `key=value` line for each call to a host, libvirt, the store or OVN, with its duration.

Nothing is written until `start` is called. A line names calls, hosts and programs, never their arguments.
Warnings and errors that libraries log are lines too.
"""

import contextlib
import itertools
import json
import logging
import os
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vgpuctl.errors import VgpuctlError
from vgpuctl.local_files import not_written, open_to_append
from vgpuctl.model.masking import without_passwords
from vgpuctl.model.printable import printable, printable_document

PROGRESS = logging.getLogger("vgpuctl.progress")
"""The remarks that the user reads on stderr anyway; they stand in the log file too."""

_LOGGER = logging.getLogger("vgpuctl")
_CALLS = logging.getLogger("vgpuctl.calls")
_ROOT = logging.getLogger()
_started: list[logging.Handler] = []
_BARE = re.compile(r"[^\s\"=]+")


class Call(NamedTuple):
    """A call to what is outside of this process, as its line of the log names it."""

    event: str
    fields: Mapping[str, object]


_under_way: dict[int, Call] = {}
_numbers = itertools.count()


def calls_under_way() -> Sequence[Call]:
    """The calls that have not ended, of all threads, in the order in which they began."""
    return list(_under_way.values())


@contextlib.contextmanager
def timed(event: str, *, level: int = logging.DEBUG, **fields: object) -> Iterator[dict[str, object]]:
    """Log a call when it ends: its event, fields, duration and, where it failed, the error.

    Until then it is one of `calls_under_way`.
    Yields the fields, so that the block can add to them; a field that is None is left out.
    """
    begun, number = time.monotonic(), next(_numbers)
    _under_way[number] = Call(event, fields)
    try:
        yield fields
    except BaseException as error:
        fields["error"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        del _under_way[number]
        if _CALLS.isEnabledFor(level):
            fields["duration_ms"] = round((time.monotonic() - begun) * 1000, 1)
            _CALLS.log(level, event, extra={"fields": fields})


def start(
    *,
    verbosity: int = 0,
    file: Path | None = None,
    write: Callable[[str], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Log to `write` (verbosity 1: info, 2: debug) and everything to a file, which is appended to and made private.

    Raises FileNotWritten when the file cannot be opened; one that takes no more lines ends the log, not the command.
    """
    if verbosity and write is not None:
        _add(_Writer(write), logging.INFO if verbosity == 1 else logging.DEBUG)
    if file is not None:
        _add(_File(file, warn), logging.DEBUG)


def note_end(code: int) -> None:
    """Log the end of the command. code: its exit code."""
    _LOGGER.info("ended", extra={"fields": {"exit_code": code}})


def stop() -> None:
    """Close what `start` opened."""
    while _started:
        handler = _started.pop()
        _ROOT.removeHandler(handler)
        handler.close()
    _LOGGER.setLevel(logging.NOTSET)


def _add(handler: logging.Handler, level: int) -> None:
    handler.setLevel(level)
    handler.setFormatter(_KeyValue())
    _ROOT.addHandler(handler)
    _started.append(handler)
    _LOGGER.setLevel(min(level, _LOGGER.level or level))


class _Writer(logging.Handler):
    """Hands each line to a function, without the lines that the user reads anyway."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write
        self.addFilter(lambda record: record.name != PROGRESS.name)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self._write(self.format(record))


class _File(logging.Handler):
    """Appends each line to a file. The first line that it does not take is its last, and the user is told."""

    def __init__(self, path: Path, warn: Callable[[str], None] | None) -> None:
        super().__init__()
        self._path = path
        self._warn = warn
        self._descriptor: int | None = open_to_append(path, "the log")

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        if self._descriptor is None:
            return
        line = memoryview(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            self.close()
            if self._warn is not None:
                failure = not_written(error, "the log", self._path)
                self._warn(f"warning: {failure.message}; nothing more is logged there ({failure.hint})")

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        super().close()


class _KeyValue(logging.Formatter):
    """`time=… level=debug event=ssh-login host=gpu1 duration_ms=3.1`; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the lines of one record, without passwords and without what a terminal obeys."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "time": f"{at}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        line = " ".join(f"{key}={_value(value)}" for key, value in fields.items() if value is not None)
        if record.exc_info:
            line += "\n" + printable_document(self.formatException(record.exc_info))
        return without_passwords(line)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """The tracebacks of an exception and of those that led to it, the first one first."""
        error: BaseException | None = ei[1]
        told: list[str] = []
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            frames = "".join(traceback.format_tb(error.__traceback__))
            told.append(f"Traceback (most recent call last):\n{frames}{_shown(error)}")
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\n\nwhich led to:\n\n".join(reversed(told))


def _shown(error: BaseException) -> str:
    """The last line of an exception's traceback. Only our own messages and the system's answers are known to hold no
    secret: a library quotes what it was given."""
    name = type(error).__name__
    if isinstance(error, VgpuctlError):
        return f"{name}: {error}"
    return f"{name}: {error.strerror}" if isinstance(error, OSError) and error.strerror else name


def _value(value: object) -> str:
    text = str(value)
    return printable(text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False))
