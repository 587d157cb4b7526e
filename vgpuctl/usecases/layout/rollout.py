# SPDX-License-Identifier: Apache-2.0
"""How a change goes through a fleet: in batches, and no further once too many hosts failed."""

import re
import threading
from collections.abc import Sequence

from vgpuctl.errors import UsageError

_NUMBER = re.compile(r"([0-9]{1,9})(%?)")


def parse_serial(text: str | None) -> tuple[str, ...]:
    """Read `--serial`: `2`, `30%` or a list such as `1,5,50%`. Raises UsageError."""
    if text is None:
        return ()
    parts = tuple(part.strip() for part in text.split(","))
    for part in parts:
        match = _NUMBER.fullmatch(part)
        if match is None or int(match[1]) == 0 or (match[2] and int(match[1]) > 100):
            raise UsageError(f"--serial {text[:60]}: {part[:60]!r} is no batch", hint="for example 2, 25% or 1,5,50%")
    return parts


def batches(names: Sequence[str], serial: Sequence[str]) -> list[list[str]]:
    """Cut the hosts into batches; the last size of `serial` is used until the end. A percentage is of all hosts."""
    if not serial:
        return [list(names)] if names else []
    found: list[list[str]] = []
    left = list(names)
    number = 0
    while left:
        part = serial[min(number, len(serial) - 1)]
        size = max(1, len(names) * int(part[:-1]) // 100) if part.endswith("%") else int(part)
        found.append(left[:size])
        left = left[size:]
        number += 1
    return found


class FailureBudget:
    """How many hosts may fail before no further one is begun. most: None for no limit. Thread-safe."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._failed = 0
        self._lock = threading.Lock()

    def count(self) -> None:
        """One more host failed."""
        with self._lock:
            self._failed += 1

    @property
    def is_spent(self) -> bool:
        """True if more hosts failed than may."""
        with self._lock:
            return self._most is not None and self._failed > self._most
