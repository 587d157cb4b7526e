# SPDX-License-Identifier: Apache-2.0
"""Clients that log in wrongly have to wait longer and longer before they may try again, also with what is right.

A right login ends no wait: whoever has a login of their own could guess those of others between two of them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

FREE = 5
"""Wrong logins of a client as one user without a wait."""
FREE_OF_CLIENT = 50
"""The same of a client as all users: behind its address there may be several, and none shuts the others out at once."""
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

    def wait_s(self, client: str, user: str) -> float:
        """Seconds until this client may try again as this user; 0.0 if it may now."""
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

    def _wait_s(self, key: tuple[str, str | None], free: int) -> float:
        found = self._kept.get(key)
        if found is None or found.number < free:
            return 0.0
        wait_s = min(LONGEST_WAIT_S, 2.0 ** (found.number - free))
        return max(0.0, found.last + wait_s - self._clock())
