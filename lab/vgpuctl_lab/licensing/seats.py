# SPDX-License-Identifier: Apache-2.0
"""Seats, leases and tokens of a licence server: one SQLite file, which outlives its process.

A writer has the file alone, so two clients never get the last seat together.
"""

import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vgpuctl_lab.licensing.client import LicenceRefused, Refusal

_TABLES = """
CREATE TABLE IF NOT EXISTS seats (edition TEXT PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS leases (id TEXT PRIMARY KEY, client TEXT NOT NULL UNIQUE, edition TEXT NOT NULL,
    taken_at REAL NOT NULL, expires_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS tokens (id TEXT PRIMARY KEY, issued_at REAL NOT NULL, revoked_at REAL);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value REAL NOT NULL);
"""
_LEASE = "lease_s"
_WAIT_S = 10.0


@dataclass(frozen=True)
class Lease:
    """A seat that a client has until it expires. id: known to the server and this client alone."""

    id: str
    client: str
    edition: str
    taken_at: float
    expires_at: float


class Seats:
    """The file. Times are seconds since the epoch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._writing() as connection:
            connection.executescript(_TABLES)

    def set_up(self, seats: Mapping[str, int], lease_s: float) -> None:
        """Set the seats by edition and the lease of new check-outs. Leases of other editions run on to their end."""
        with self._writing() as connection:
            connection.execute("DELETE FROM seats")
            connection.executemany("INSERT INTO seats VALUES (?, ?)", sorted(seats.items()))
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (_LEASE, lease_s))

    def counts(self) -> dict[str, int]:
        """How many seats there are, by edition."""
        with self._reading() as connection:
            return dict(connection.execute("SELECT edition, count FROM seats ORDER BY edition"))

    def lease_s(self) -> float:
        """How long a lease lasts without a renewal."""
        with self._reading() as connection:
            (value,) = connection.execute("SELECT value FROM settings WHERE name = ?", (_LEASE,)).fetchone()
            return float(value)

    def leases(self, now: float) -> list[Lease]:
        """The leases that have not expired, by edition and client."""
        with self._reading() as connection:
            rows = connection.execute("SELECT * FROM leases WHERE expires_at > ? ORDER BY edition, client", (now,))
            return [Lease(*row) for row in rows]

    def check_out(self, client: str, editions: Sequence[str], now: float) -> Lease:
        """Give a client a seat of the first of these editions that has a free one.

        A client has one lease. A client that asks again, as after a crash, keeps its seat and gets a new lease id.
        Raises LicenceRefused.
        """
        with self._writing() as connection:
            connection.execute("DELETE FROM leases WHERE expires_at <= ?", (now,))
            there = dict(connection.execute("SELECT edition, count FROM seats"))
            offered = [one for one in editions if one in there]
            if not offered:
                raise LicenceRefused(Refusal.NO_EDITION, f"there are no seats of {', '.join(editions)} here")
            connection.execute("DELETE FROM leases WHERE client = ?", (client,))
            for edition in offered:
                counted = connection.execute("SELECT count(*) FROM leases WHERE edition = ?", (edition,))
                if counted.fetchone()[0] < there[edition]:
                    lease = Lease(secrets.token_hex(16), client, edition, now, now + self.lease_s())
                    connection.execute(
                        "INSERT INTO leases VALUES (?, ?, ?, ?, ?)", (lease.id, client, edition, now, lease.expires_at)
                    )
                    return lease
            raise LicenceRefused(Refusal.FULL, f"all seats of {', '.join(offered)} are taken")

    def renew(self, lease_id: str, now: float) -> Lease:
        """Let a lease begin again. Raises LicenceRefused for one that has ended or never was."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE leases SET expires_at = ? WHERE id = ? AND expires_at > ?",
                (now + self.lease_s(), lease_id, now),
            )
            found = connection.execute("SELECT * FROM leases WHERE id = ? AND expires_at > ?", (lease_id, now))
            row = found.fetchone()
        if row is None:
            raise LicenceRefused(Refusal.NO_LEASE, "there is no such lease, or it has expired")
        return Lease(*row)

    def give_back(self, lease_id: str) -> None:
        """End a lease; its seat is free at once. Repeatable."""
        with self._writing() as connection:
            connection.execute("DELETE FROM leases WHERE id = ?", (lease_id,))

    def note_token(self, token_id: str, now: float) -> None:
        """Remember a token that is given out."""
        with self._writing() as connection:
            connection.execute("INSERT INTO tokens VALUES (?, ?, NULL)", (token_id, now))

    def revoke_tokens(self, now: float) -> int:
        """Revoke every token that was given out so far. Returns how many were valid before."""
        with self._writing() as connection:
            return connection.execute("UPDATE tokens SET revoked_at = ? WHERE revoked_at IS NULL", (now,)).rowcount

    def is_revoked(self, token_id: str) -> bool:
        """True for a token that was revoked, or never given out."""
        with self._reading() as connection:
            row = connection.execute("SELECT revoked_at FROM tokens WHERE id = ?", (token_id,)).fetchone()
            return row is None or row[0] is not None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)) as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            if connection.in_transaction:  # executescript ends it
                connection.execute("COMMIT")
