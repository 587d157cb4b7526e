# SPDX-License-Identifier: Apache-2.0
"""Servers on the operators' store, and a hostile role of a tenant, during a storm of commands.

The servers must answer until the end. The role takes every lock and connection that it can get, and tries to write and
to see what is another tenant's: nothing of it may succeed, and no command of an operator may fail by it.
"""

import contextlib
import re
import secrets
import subprocess
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import psycopg
from psycopg import errors
from psycopg.conninfo import make_conninfo

from tests.e2e.operator import Operator

SERVERS: Mapping[str, tuple[Sequence[str], str]] = {
    "serve exporter": (("--store-only", "--interval", "1"), "/metrics"),
    "serve web": (("--cached",), "/"),
}
"""Command → its arguments, and a page of it."""
_ADDRESS = re.compile(r"http://[^/\s]+")
_PAUSE_S = 0.5
_PAGE_S = 60.0

_ROLE = "hostile"
_LOCKS = (
    f"SELECT pg_try_advisory_lock(1), pg_try_advisory_lock({0x76677075}), pg_try_advisory_lock_shared(2)",
    "BEGIN",
    "SELECT count(*) FROM vms, leases, settings, events",
)
"""What PostgreSQL lets everybody do; it is held until the connection is closed."""
_REFUSED = (
    "SELECT * FROM settings FOR UPDATE",
    "SELECT * FROM vms FOR SHARE",
    "LOCK TABLE settings IN EXCLUSIVE MODE",
    "UPDATE role_tenants SET tenant = 'umbrella'",
    "DELETE FROM leases",
    "INSERT INTO tenants (name, created_at) VALUES ('mine', 0)",
    "ALTER TABLE vms DISABLE ROW LEVEL SECURITY",
    "SET ROLE postgres",
    "ALTER ROLE hostile CONNECTION LIMIT -1",
)
_FOREIGN = "SELECT count(*) FROM vms, leases WHERE vms.tenant <> 'acme' OR leases.tenant <> 'acme'"


class Neighbours:
    """Servers and the hostile role, from `beside` on. counts: what they did. faults: what should not have happened."""

    def __init__(self, operator: Operator, database: str | None) -> None:
        self._operator = operator
        self._database = database
        self._stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []

    @contextlib.contextmanager
    def beside(self) -> Iterator["Neighbours"]:
        """Let them live for the length of the block."""
        with contextlib.ExitStack() as ends:
            work = [threading.Thread(target=self._ask, args=one) for one in self._servers(ends)]
            if self._database is not None:
                work.append(threading.Thread(target=self._harm, args=(self._hostile(self._database),)))
            for one in work:
                one.start()
                ends.callback(one.join)
            ends.callback(self._stop.set)
            yield self

    def _servers(self, ends: contextlib.ExitStack) -> list[tuple[str, str, "subprocess.Popen[str]"]]:
        started = []
        for name, (arguments, page) in SERVERS.items():
            process = self._operator.start(*name.split(), *arguments, "--listen", "127.0.0.1:0")
            ends.callback(_end, process)
            assert process.stderr is not None
            address = next((found[0] for line in process.stderr if (found := _ADDRESS.search(line))), None)
            if address is None:
                raise RuntimeError(f"{name} ended with {process.wait()}")
            threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop it
            started.append((name, f"{address}{page}", process))
        return started

    def _ask(self, name: str, url: str, process: "subprocess.Popen[str]") -> None:
        """Ask for a page until the end."""
        while not self._stop.wait(_PAUSE_S):
            if process.poll() is not None:
                self.faults.append(f"{name} ended with {process.returncode}")
                return
            try:
                with urllib.request.urlopen(url, timeout=_PAGE_S) as answer:
                    answer.read()
            except (urllib.error.URLError, OSError) as error:
                self.faults.append(f"{name}: {url}: {error}")
            else:
                self.counts[f"pages of {name}"] += 1

    def _hostile(self, database: str) -> str:
        """Make the role. Returns its address of the database."""
        password = secrets.token_hex(8)
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute(f"DROP ROLE IF EXISTS {_ROLE}")
            owner.execute(f"CREATE ROLE {_ROLE} LOGIN PASSWORD '{password}'".encode())
        self._operator.does("grant-store", "--role", _ROLE, "--as", "tenant:acme")
        return make_conninfo(database, user=_ROLE, password=password)

    def _harm(self, address: str) -> None:
        """Take all that can be taken, again and again."""
        while not self._stop.wait(_PAUSE_S):
            with contextlib.ExitStack() as held:
                try:
                    while not self._stop.is_set():
                        connection = held.enter_context(contextlib.closing(psycopg.connect(address, autocommit=True)))
                        self.counts["connections taken"] += 1
                        self._try(connection)
                        for statement in _LOCKS:
                            connection.execute(statement.encode())
                except psycopg.Error as error:
                    if "too many connections for role" not in str(error):
                        self.faults.append(f"the hostile role got: {error}")
                self._stop.wait(_PAUSE_S)

    def _try(self, connection: "psycopg.Connection[tuple[object, ...]]") -> None:
        for statement in _REFUSED:
            try:
                with connection.transaction():
                    connection.execute(statement.encode())
            except (errors.InsufficientPrivilege, errors.InvalidParameterValue):
                self.counts["refused"] += 1
            else:
                self.faults.append(f"the hostile role may: {statement}")
        found = connection.execute(_FOREIGN.encode()).fetchone()
        if found is None or found[0]:
            self.faults.append(f"the hostile role sees {found} rows of another tenant")


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
