# SPDX-License-Identifier: Apache-2.0
"""How many bytes another machine may send in one session: the one bound of SSH connections and of OVN's database."""

import errno
import threading
import time
from collections.abc import Callable


class ByteBudget:
    """A leaky bucket (ITU-T I.371): `most` bytes at once, and `per_second` bytes for as long as it takes. Thread-safe.

    sender: who sends, for the error. A budget that was exceeded once stays so, over new connections too.
    """

    def __init__(
        self, sender: str, most: int, *, per_second: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sender = sender
        self._most = most
        self._per_second = per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._level = 0.0
        self._at = clock()
        self._refusal: str | None = None

    @property
    def refusal(self) -> str | None:
        """Why nothing more is taken; None while there is room."""
        return self._refusal

    def widen(self, most: int, per_second: int) -> None:
        """Raise the sender's limits, because one more connection uses it."""
        with self._lock:
            self._most += most
            self._per_second += per_second

    def take(self, size: int) -> None:
        """Count bytes that came. Raises OSError(EMSGSIZE) when they are too many, and from then on."""
        with self._lock:
            now = self._clock()
            self._level = max(0.0, self._level - self._per_second * (now - self._at)) + size
            self._at = now
            if self._level > self._most and self._refusal is None:
                lasting = f" and {_shown(self._per_second)}/s" if self._per_second else ""
                self._refusal = f"{self._sender} sent more than {_shown(self._most)}{lasting}"
        if self._refusal is not None:
            raise OSError(errno.EMSGSIZE, self._refusal)


def _shown(size: int) -> str:
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 2**10} KiB"
