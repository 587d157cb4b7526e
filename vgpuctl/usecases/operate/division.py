# SPDX-License-Identifier: Apache-2.0
"""Division of the hosts among the controllers of one store, by claims with a heartbeat.

A controller that has not counted a beat for DEAD_AFTER_S is taken for dead by each of the others, by their own
monotonic clock; one whose process is known to be gone is dead at once. Its hosts are divided among the rest.
Rendezvous hashing (Thaler and Ravishankar, 1998) divides: a host belongs to the controller with the highest digest of
both names, so every controller finds the same division, and a death moves only the hosts of the dead.
"""

import hashlib
import uuid
from collections.abc import Callable, Collection, Sequence

from vgpuctl.store.controllers import Controller
from vgpuctl.store.liveness import is_running
from vgpuctl.store.store import Session

BEAT_S = 5.0
DEAD_AFTER_S = 30.0


class Division:
    """The part of one controller. monotonic: a clock in seconds that never jumps."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.id = str(uuid.uuid4())
        self._monotonic = monotonic
        self._beats: dict[str, tuple[int, float]] = {}

    def beat(self, session: Session, hosts: Collection[str]) -> frozenset[str]:
        """Count a beat, bury the dead and claim the own part of `hosts`. Returns the hosts that are its now.

        Hosts of others are never taken while they live: the one that has too many gives some up at its own next beat.
        """
        session.beat_controller(self.id, hosts)
        living = []
        for one in session.controllers():
            if one.id != self.id and self._is_dead(one):
                session.end_controller(one.id)
            else:
                living.append(one)
        self._beats = {one.id: self._beats[one.id] for one in living if one.id != self.id}
        own = next(one.hosts for one in living if one.id == self.id)
        wanted = {host for host in hosts if owner(host, living) == self.id}
        claimed = {host for one in living for host in one.hosts}
        session.give_up_hosts(self.id, own - wanted)
        session.claim_hosts(self.id, wanted - claimed)
        return frozenset(own & wanted | (wanted - claimed))

    def end(self, session: Session) -> None:
        """Leave: the others take the hosts at their next beat."""
        session.end_controller(self.id)

    def _is_dead(self, other: Controller) -> bool:
        if is_running(other) is False:
            return True
        now = self._monotonic()
        beat, since = self._beats.get(other.id, (None, now))
        if beat != other.beat:
            beat, since = other.beat, now
        self._beats[other.id] = (beat, since)
        return now - since > DEAD_AFTER_S


def owner(host: str, living: Sequence[Controller]) -> str:
    """The controller that a host belongs to, among those that serve it."""
    serving = [one.id for one in living if host in one.serves]
    return max(serving, key=lambda name: hashlib.sha256(f"{name} {host}".encode()).digest())
