# SPDX-License-Identifier: Apache-2.0
"""An undo stack: each side effect pushes its inverse, a failure runs them in reverse."""

from collections.abc import Callable
from types import TracebackType

from vgpuctl.errors import VgpuctlError


class Undo:
    """Push the inverse right after each deed; `keep()` last. Leaving the block without it takes everything back.

    failures: (what, error) of inverses that did not work; the others ran all the same.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._inverses: list[tuple[str, Callable[[], object]]] = []
        self.failures: list[tuple[str, VgpuctlError]] = []

    def push(self, what: str, inverse: Callable[[], object]) -> None:
        """Remember how to take back the deed just done."""
        self._inverses.append((what, inverse))

    def keep(self) -> None:
        """Everything worked: forget the inverses."""
        self._inverses.clear()

    def __enter__(self) -> "Undo":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if kind is None and not self._inverses:
            return
        while self._inverses:
            what, inverse = self._inverses.pop()
            self._say(f"taking back: {what}")
            try:
                inverse()
            except VgpuctlError as failure:
                self.failures.append((what, failure))
