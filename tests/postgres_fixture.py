# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL server for the tests: its own folder, its own port on loopback, gone at the end."""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

_START_LIMIT_S = 30
_STOP_LIMIT_S = 15
_MOST_BYTES = 512 << 20
"""What a server's files take at most: the log, its size limited below, and the databases of one test."""


def _place() -> Path:
    """The folder of servers' folders: in memory, where this machine has room for the servers of four workers.

    A database comes and goes with 300 files. ext4 looks for numbers of files that were not freed in the last seconds:
    half of a server's processor time.
    """
    in_memory = Path("/dev/shm")
    has_room = in_memory.is_dir() and shutil.disk_usage(in_memory).free > 4 * _MOST_BYTES
    return in_memory if has_room else Path("/tmp")


def find_programs() -> Path | None:
    """The folder of the newest installed server's programs, None when no server is installed."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(found, key=lambda path: float(path.parts[-3]), default=None)
    if newest is not None:
        return newest.parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


class LocalPostgres:
    """One server for the length of a `with` block; `create_database()` gives each test a database of its own.

    It runs as the user `postgres` when the tests run as root, since it refuses root. Connections through TCP and the
    socket both need the password. It ends with the process that started it, even when that is killed.
    """

    user = "vgpuctl_test"

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self.password = secrets.token_urlsafe(12)
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._clean_up = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.stop()

    def url(self, database: str, *, password: str | None = None) -> str:
        """A URL of one of this server's databases, through loopback."""
        return f"postgresql://{self.user}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str) -> str:
        """A URL of one of this server's databases, through the unix socket."""
        return f"postgresql://{self.user}:{self.password}@/{database}?host={self.folder}&port={self.port}"

    @contextlib.contextmanager
    def create_database(self, *, template: str = "template1") -> Iterator[str]:
        """The URL of a new database, a copy of `template`, dropped at the end of the block."""
        name = f"test_{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str, *, database: str = "postgres") -> None:
        """Run one statement as the server's owner."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def crash(self) -> None:
        """End the server at once, as a power cut does for those connected to it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(_STOP_LIMIT_S)
        self._process = None

    def stop(self) -> None:
        """End the server (by its own pid) and remove its folder."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # "fast shutdown"
            try:
                self._process.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGQUIT)  # "immediate shutdown"
                self._process.wait(_STOP_LIMIT_S)
            self._process = None
        self._clean_up.close()

    def _start(self) -> None:
        # A short path: a unix socket's may have 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-of-tests-", dir=_place()))
        self._clean_up.callback(shutil.rmtree, self.folder, ignore_errors=True)
        password_file = self.folder / "password"
        password_file.write_text(self.password)
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            for path in (self.folder, password_file):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        self._make_data(password_file)
        for _attempt in range(20):
            if self._listens_on(_unused_port()):
                return
        raise RuntimeError(f"PostgreSQL does not start:\n{self._log().read_text(errors='replace')}")

    def _make_data(self, password_file: Path) -> None:
        subprocess.run(
            self._as_owner(
                "initdb", "--pgdata", str(self.folder / "data"), "--username", self.user, "--no-sync",
                "--auth=scram-sha-256", f"--pwfile={password_file}", "--encoding=UTF8", "--locale=C.UTF-8",
            ),
            check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/", timeout=_START_LIMIT_S,
        )  # fmt: skip

    def _listens_on(self, port: int) -> bool:
        """Start the server; False when another program took the port first, which the server itself finds out."""
        settings = {
            "listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": str(self.folder),
            "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "off",
            "shared_buffers": "16MB", "min_wal_size": "32MB", "max_wal_size": "64MB", "max_connections": "60",
            "log_min_messages": "warning", "lc_messages": "C",
        }  # fmt: skip
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self._log().open("wb") as log:
            self._process = subprocess.Popen(
                self._as_owner("postgres", "-D", str(self.folder / "data"), *arguments, dies_with_us=True),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
            )  # fmt: skip
        self.port = port
        import psycopg  # here, so that a unit test needs none

        give_up = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < give_up:
            if self._process.poll() is not None:
                self._process = None
                if "could not bind" in self._log().read_text(errors="replace"):
                    return False
                raise RuntimeError(f"PostgreSQL ended:\n{self._log().read_text(errors='replace')}")
            try:
                psycopg.connect(self.socket_url("postgres"), connect_timeout=5).close()
                return True
            except psycopg.OperationalError:
                time.sleep(0.05)
        raise RuntimeError(f"PostgreSQL does not answer:\n{self._log().read_text(errors='replace')}")

    def _log(self) -> Path:
        return self.folder / "server.log"

    def _as_owner(self, program: str, *arguments: str, dies_with_us: bool = False) -> list[str]:
        command = [str(self._programs / program), *arguments]
        change = []
        if os.geteuid() == 0:
            change += ["--reuid=postgres", "--regid=postgres", "--init-groups"]
        if dies_with_us:
            change += ["--pdeathsig=QUIT"]
        return ["setpriv", *change, "--", *command] if change else command


class LocalStandby(LocalPostgres):
    """A streaming standby of another server, made by pg_basebackup. Every commit of the primary waits for it."""

    def __init__(self, programs: Path, primary: LocalPostgres) -> None:
        super().__init__(programs)
        self._primary = primary
        self.password = primary.password

    def promote(self) -> None:
        """Make it the primary."""
        self.execute("SELECT pg_promote()")

    def _start(self) -> None:
        super()._start()
        # The files of the standby do not have this: it waits for nobody when it is the primary.
        for setting in ("synchronous_standby_names = '*'", "synchronous_commit = 'on'"):
            self._primary.execute(f"ALTER SYSTEM SET {setting}")
        self._primary.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = 'on'")
        self._primary.execute("SELECT pg_reload_conf()")

    def _make_data(self, password_file: Path) -> None:
        address = f"host={self._primary.folder} port={self._primary.port} user={self.user} password={self.password}"
        subprocess.run(
            self._as_owner(
                "pg_basebackup", "--pgdata", str(self.folder / "data"), "--write-recovery-conf", "--wal-method=stream",
                "--checkpoint=fast", "--no-sync", f"--dbname={address}",
            ),
            check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/", timeout=_START_LIMIT_S,
        )  # fmt: skip


def _unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
