# SPDX-License-Identifier: Apache-2.0
"""Logins after wrong ones are slowed down: they are checked in turns, a few each second, and never shut out.

Behind an address there may be several users, and whoever forwards a port to it: wrong logins of one must not keep
another one out, nor guesses at a user that user. So what is right gets in also then, at its turn. A right login ends
nothing: whoever has a login of their own could guess those of others between two of them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

FREE = 5
"""Wrong logins of a client as one user that slow nothing down."""
FREE_OF_CLIENT = 50
"""The same of a client as all users; each user has turns of their own then too."""
TURNS_PER_S = 4
"""Checks of one user's password for one client: bcrypt is slow on purpose, and a guess is to be rare."""
LONGEST_TURN_S = 10.0
"""More than all connections of a client need, each with a login (`web/connections.py`)."""
LONGEST_WAIT_S = 60.0
FORGOTTEN_S = 900.0
"""After this time without a wrong login everything begins anew."""
_MOST_KEPT = 8192
_MOST_COUNTED = 1000


@dataclass(frozen=True)
class _Wrong:
    number: int
    last: float


class WrongLogins:
    """The wrong logins by client (`hosts.client_of`) and user. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, str | None], _Wrong] = {}
        self._turns: dict[tuple[str, str], float] = {}

    def wait_s(self, client: str, user: str) -> float:
        """Seconds for which logins of this client as this user are checked in turns; 0.0 if they are not."""
        return max(self._wait_s((client, user), FREE), self._wait_s((client, None), FREE_OF_CLIENT))

    def add(self, client: str, user: str) -> None:
        """Keep one more wrong login."""
        now = self._clock()
        for key in ((client, user), (client, None)):
            found = self._kept.pop(key, None)
            number = 1 if found is None or now - found.last > FORGOTTEN_S else min(found.number + 1, _MOST_COUNTED)
            # At the end: the first ones are those that have been quiet longest.
            self._kept[key] = _Wrong(number, now)
        while len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]

    def turn_s(self, client: str, user: str) -> float | None:
        """Seconds until the turn of one more login of this client as this user; None if too many are before it."""
        now = self._clock()
        begin = max(now, self._turns.pop((client, user), now))
        if begin - now > LONGEST_TURN_S:
            self._turns[client, user] = begin
            return None
        self._turns[client, user] = begin + 1 / TURNS_PER_S
        while len(self._turns) > _MOST_KEPT:
            del self._turns[next(iter(self._turns))]
        return begin - now

    def _wait_s(self, key: tuple[str, str | None], free: int) -> float:
        found = self._kept.get(key)
        if found is None or found.number < free:
            return 0.0
        wait_s = min(LONGEST_WAIT_S, 2.0 ** (found.number - free))
        return max(0.0, found.last + wait_s - self._clock())
