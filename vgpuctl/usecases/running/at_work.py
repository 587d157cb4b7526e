# SPDX-License-Identifier: Apache-2.0
"""Work in several threads, which an interrupted run ends in order."""

import contextlib
import threading
from collections.abc import Callable, Iterator


class AtWork:
    """The pieces of work that run now. stop: set when no further one is to begin. noun: of one piece, for people."""

    def __init__(self, noun: str, until: str) -> None:
        self.stop = threading.Event()
        self._noun = noun
        self._until = until
        self._count = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def one(self) -> Iterator[bool]:
        """Count one piece for the length of the block. Gives False when no further one is to be begun."""
        with self._changed:
            self._count += 1
            is_begun = not self.stop.is_set()
        try:
            yield is_begun
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def end(self, say: Callable[[str], None]) -> None:
        """Begin no further piece, and wait until those under way have ended."""
        with self._changed:
            self.stop.set()
            if self._count:
                say(f"interrupted: waiting for {self._count} {self._noun}{'s'[: self._count > 1]} {self._until}")
            while self._count:
                self._changed.wait(timeout=0.2)
