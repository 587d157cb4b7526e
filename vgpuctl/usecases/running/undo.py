# SPDX-License-Identifier: Apache-2.0
"""An undo stack: each side effect pushes its inverse, a failure runs them in reverse, and nothing interrupts that."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.rehearsal import RehearsalEnds
from vgpuctl.usecases.running import interruptions


@dataclass(frozen=True)
class Failure:
    """An inverse that did not work, and why."""

    what: str
    reason: str


class Undo:
    """Push the inverse right after each deed; `keep()` last. Leaving the block without it rolls everything back.

    Every inverse runs, whatever the others raise. SIGINT and SIGTERM interrupt the block once; while inverses run
    they are noted, and KeyboardInterrupt is raised at the end. subject: for messages. settle: called after the
    inverses, within the same protection, to forget rows when `failures` is empty and to keep them when not. cause: the
    error that ended the block, empty while there is none. A dry run has nothing to roll back.
    """

    def __init__(
        self, say: Callable[[str], None], *, subject: str = "", settle: Callable[["Undo"], None] | None = None
    ) -> None:
        self._say = say
        self._prefix = f"{subject}: " if subject else ""
        self._settle = settle
        self._inverses: list[tuple[str, Callable[[], object]]] = []
        self._is_kept = False
        self._is_unknown = False
        self._is_open = False
        self.cause = ""
        self.failures: list[Failure] = []

    @property
    def problem(self) -> str:
        """The failures in one line."""
        return "; ".join(f"rolling back {one.what}: {one.reason}" for one in self.failures)

    def push(self, what: str, inverse: Callable[[], object]) -> None:
        """Remember how to roll back the deed just done."""
        self._inverses.append((what, inverse))

    def keep(self) -> None:
        """Everything worked: forget the inverses."""
        self._is_kept = True
        self._inverses.clear()

    @contextlib.contextmanager
    def unknown(self) -> Iterator[None]:
        """Within the block nobody knows what is there: if it is left by an error, nothing is rolled back."""
        self._is_unknown = True
        yield
        self._is_unknown = False

    def __enter__(self) -> "Undo":
        self._is_open = True
        interruptions.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.finish(error)

    def finish(self, error: BaseException | None = None) -> None:
        """Roll back what is not kept and end the block; a second call does nothing.

        A caller with several blocks calls it for each, so that a signal just before the first one loses none.
        Raises KeyboardInterrupt for a signal that came meanwhile.
        """
        if not self._is_open:
            return
        is_kept = self._is_kept or self._is_unknown
        interruptions.hold(only_outermost=is_kept)
        if not (is_kept or isinstance(error, RehearsalEnds)):
            if error is not None:
                self.cause = "interrupted" if isinstance(error, KeyboardInterrupt) else _reason(error)
            self._roll_back()
        self._is_open = False
        if interruptions.leave() and not isinstance(error, KeyboardInterrupt):
            if error is not None:
                self._tell(f"failed before the interrupt: {_reason(error)}")
            raise KeyboardInterrupt

    def _roll_back(self) -> None:
        had_any = bool(self._inverses)
        while self._inverses:
            what, inverse = self._inverses[-1]
            self._tell(f"rolling back: {what}")
            self._try(what, inverse)
            self._inverses.pop()
        settle = self._settle
        if settle is not None:
            self._try("rows of the store", lambda: settle(self))
        if self.failures:
            left = ", ".join(f"{one.what} ({one.reason})" for one in self.failures)
            self._tell(f"rolled back in part; still there: {left}; `vgpuctl repair` finishes it")
        elif had_any:
            self._tell("rolled back completely, nothing is left")

    def _try(self, what: str, inverse: Callable[[], object]) -> None:
        try:
            inverse()
        except BaseException as failure:  # noqa: BLE001 (reported, and the other inverses run all the same)
            self.failures.append(Failure(what, _reason(failure)))

    def _tell(self, text: str) -> None:
        # A terminal that is gone must not keep an inverse from running.
        with contextlib.suppress(OSError, ValueError):
            self._say(f"{self._prefix}{text}")


def _reason(failure: BaseException) -> str:
    if isinstance(failure, VgpuctlError):
        return failure.message
    return f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
