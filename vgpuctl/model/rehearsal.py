# SPDX-License-Identifier: Apache-2.0
"""A dry run that runs the command itself: hosts are read, and a change of a host is noted instead of made.

A change whose result nothing else needs is noted, and the run goes on. Any other change ends the run, unless its use
case is one that goes on: it leaves the change out, and what follows sees the store and the facts as if it was made.
"""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from vgpuctl.agent.wire.facts import HostFacts
    from vgpuctl.agent.wire.steps import Change


@dataclass(frozen=True)
class RehearsedStep:
    """A change that a dry run did not make. text: the change, `shut down domain acme.web`."""

    host: str
    text: str


class RehearsalEnds(Exception):
    """A dry run has come to a change of a host on which all that follows depends. It is not an error."""


class Rehearsal:
    """The changes of one dry run, by the thread that would have made them. tell: called with a line for people.

    goes_on: the use case leaves changes of hosts out and goes on, so that the next VM finds what this one took.
    of_reader: of a command that only asks what another would do, and works on a SQLite store that cannot be written.
    """

    def __init__(
        self, tell: Callable[[str], None] = lambda _line: None, *, goes_on: bool = False, of_reader: bool = False
    ) -> None:
        self.goes_on = goes_on
        self.of_reader = of_reader
        self._tell = tell
        self._local = threading.local()
        self._left_out: defaultdict[str, list[Callable[[HostFacts], HostFacts]]] = defaultdict(list)

    def leave_out(self, host: str, change: "Callable[[HostFacts], HostFacts]") -> None:
        """From now on the facts of a host are read as if this change had been made there."""
        self._left_out[host].append(change)

    @contextlib.contextmanager
    def forgetting(self) -> Iterator[None]:
        """Forget at the end of the block which changes were left out in it."""
        before = {host: len(changes) for host, changes in self._left_out.items()}
        try:
            yield
        finally:
            for host, changes in self._left_out.items():
                del changes[before.get(host, 0) :]

    def is_changed(self, host: str) -> bool:
        """True if a change of the host was left out that its facts show."""
        return bool(self._left_out[host])

    def facts(self, host: str, facts: "HostFacts") -> "HostFacts":
        """The facts of a host as they would be read after the changes that were left out."""
        for change in self._left_out[host]:
            facts = change(facts)
        return facts

    def would(self, host: str, text: str) -> None:
        """Note a change that is not made; the run goes on."""
        self._steps().append(RehearsedStep(host, text))
        self._tell(f"{host}: would {text}")

    def would_make(self, host: str, changes: "Iterable[Change]") -> None:
        """Note the changes that the agent would make; the run goes on."""
        for one in changes:
            if one.changed:
                self.would(host, f"{one.op} {one.target}: {one.before or 'none'} to {one.after or 'none'}")

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
