# SPDX-License-Identifier: Apache-2.0
"""Costs of one connection: counted where they occur, read by the benches and by `-v`."""

import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """One reading.

    logins: SSH authentications, jump hosts included. channels: session channels opened. round_trips: how often
    the flow on the connection turned from sending to receiving, plus one per TCP connect. bytes: on the
    wire of the target's own connection, encrypted.
    """

    logins: int = 0
    channels: int = 0
    round_trips: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


class ConnectionStatistics:
    """Thread-safe counters of one connection; `read()` gives them as a value."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logins = 0
        self._channels = 0
        self._round_trips = 0
        self._bytes_sent = 0
        self._bytes_received = 0
        self._has_sent_last = False

    def read(self) -> Counts:
        """Return the counts up to now."""
        with self._lock:
            return Counts(self._logins, self._channels, self._round_trips, self._bytes_sent, self._bytes_received)

    def count_login(self) -> None:
        """Note one successful SSH authentication."""
        with self._lock:
            self._logins += 1

    def count_channel(self) -> None:
        """Note one session channel opened."""
        with self._lock:
            self._channels += 1

    def count_connect(self) -> None:
        """Note one TCP connect, which is one round trip."""
        with self._lock:
            self._round_trips += 1

    def count_sent(self, size: int) -> None:
        """Note bytes handed to the network."""
        with self._lock:
            self._bytes_sent += size
            self._has_sent_last = True

    def count_received(self, size: int) -> None:
        """Note bytes got from the network; the first after a sending completes a round trip."""
        with self._lock:
            self._bytes_received += size
            if self._has_sent_last:
                self._has_sent_last = False
                self._round_trips += 1
