# SPDX-License-Identifier: Apache-2.0
"""An expensive answer for many readers at once."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
KEPT_S = 2.0


class Kept(Generic[T]):
    """The answer of a function, asked again when it is older than KEPT_S. One thread asks, the others wait."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._answer: tuple[T, float] | None = None

    def get(self) -> T:
        """The answer. Raises what the function raises."""
        with self._lock:
            if self._answer is None or time.monotonic() - self._answer[1] > KEPT_S:
                self._answer = self._ask(), time.monotonic()
            return self._answer[0]
