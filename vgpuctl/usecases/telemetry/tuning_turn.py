# SPDX-License-Identifier: Apache-2.0
"""The turn of one controller at the trials of the fleet, and what blocks it: the turn of a controller that died.

Nobody can ask another machine if a process lives (store/liveness.py). A controller that counts beats does; one that
counts none, and keeps its turn for an hour, is taken for dead by this one's own clock, as usecases/operate/division.py
does with its hosts. Two that go on with one trial do no harm: what is found on the hosts decides.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from vgpuctl.model.times import format_time
from vgpuctl.store.liveness import is_running
from vgpuctl.store.records import Operation
from vgpuctl.store.session import Session
from vgpuctl.usecases.running.services import Services

_TUNING = "tune:fleet"

TOLD_AFTER_S = 300.0
"""A turn takes less, but for the live move of a large VM."""

DEAD_AFTER_S = 3600.0


@dataclass
class TuningTurn:
    """monotonic: a clock in seconds that never jumps."""

    monotonic: Callable[[], float] = time.monotonic
    _seen: tuple[int, float] | None = field(default=None, init=False)
    """The operation that blocks, and when it was first seen."""

    @contextlib.contextmanager
    def taken(self, services: Services) -> Iterator[None]:
        """Have the turn in the block. Raises ConcurrentChange while another controller may have it."""
        with services.store.operation("tune", _TUNING, exclusive=True, takes_over=True):
            self._seen = None
            yield

    def blocked(self, services: Services) -> str | None:
        """Say why the turn is blocked for long and how that ends; None where others take turns.

        After an hour without a beat the turn of the other one is ended, which is said too.
        """
        with services.store.transaction() as session:
            other = next((one for one in session.open_operations() if _may_be_dead(one, session)), None)
            if other is None:
                self._seen = None
                return None
            now = self.monotonic()
            if self._seen is None or self._seen[0] != other.id:
                self._seen = (other.id, now)
            waited_s = now - self._seen[1]
            if waited_s >= DEAD_AFTER_S:
                session.end_operation(other.id)
        place = f"process {other.pid} on {other.hostname}"
        if waited_s >= DEAD_AFTER_S:
            return f"the turn of {place} is ended: it is no controller that runs, and kept it for an hour"
        if waited_s < TOLD_AFTER_S:
            return None
        return (
            f"nothing is tuned: {place} has its turn since {format_time(other.begun_at)} UTC and is no controller that"
            f" runs; `vgpuctl repair` on {other.hostname} ends the turn, `vgpuctl repair --gone {other.hostname}`, or"
            " this controller once it has waited for an hour"
        )


def _may_be_dead(other: Operation, session: Session) -> bool:
    """True for a turn of a process on another machine that counts no beats as a controller."""
    if other.subject != _TUNING or is_running(other) is not None:
        return False
    process = (other.hostname, other.machine, other.pid, other.process_start)
    return process not in {(one.hostname, one.machine, one.pid, one.process_start) for one in session.controllers()}
