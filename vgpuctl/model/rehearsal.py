# SPDX-License-Identifier: Apache-2.0
"""A dry run that runs the command itself: hosts are read, and a change of a host is noted instead of made.

A change whose result nothing else needs is noted, and the run goes on. Any other change ends the run.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn


@dataclass(frozen=True)
class RehearsedStep:
    """A change that a dry run did not make. text: the change, `shut down domain acme.web`."""

    host: str
    text: str


class RehearsalEnds(Exception):
    """A dry run has come to a change of a host on which all that follows depends. It is not an error."""


class Rehearsal:
    """The changes of one dry run, by the thread that would have made them. tell: called with a line for people."""

    def __init__(self, tell: Callable[[str], None] = lambda _line: None) -> None:
        self._tell = tell
        self._local = threading.local()

    def would(self, host: str, text: str) -> None:
        """Note a change that is not made; the run goes on."""
        self._steps().append(RehearsedStep(host, text))
        self._tell(f"{host}: would {text}")

    def end(self, host: str, text: str) -> NoReturn:
        """Note a change that is not made, and end the run. Raises RehearsalEnds."""
        self.would(host, text)
        raise RehearsalEnds(f"{host}: {text}")

    def take(self) -> tuple[RehearsedStep, ...]:
        """The changes noted by this thread since the last call."""
        steps = self._steps()
        taken = tuple(steps)
        steps.clear()
        return taken

    def _steps(self) -> list[RehearsedStep]:
        found: list[RehearsedStep] | None = getattr(self._local, "steps", None)
        if found is None:
            found = self._local.steps = []
        return found
