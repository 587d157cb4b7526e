# SPDX-License-Identifier: Apache-2.0
"""pg_dump, pg_restore and psql: PostgreSQL's own programs for a backup and its restore."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from vgpuctl.errors import StoreUnusable, UsageError
from vgpuctl.local_files import is_full_answer, room_refused
from vgpuctl.model.masking import without_words
from vgpuctl.store import postgresql
from vgpuctl.store.address import SECRETS, PostgresqlAddress
from vgpuctl.store.failures import DatabaseError, translate
from vgpuctl.store.libpq_files import judge_files
from vgpuctl.trusted_programs import judge_program

TIME_LIMIT_S = 3600
_VERSION = re.compile(r"\(PostgreSQL\) (\d{1,18})")
_LOCK_WAIT_MS = 15_000
_SHOWN = 600
_NOT_THE_OWNER = ("permission denied", "must be owner", "row-level security")


def dump(address: PostgresqlAddress, path: Path) -> None:
    """Write the whole database to a file in pg_dump's custom format, as one snapshot of it, while it is in use.

    Raises StoreUnusable when pg_dump is missing, older than the server, or fails; FileNotWritten for a full disk.
    """
    require("pg_dump", address)
    options = ["--format=custom", "--no-password", f"--lock-wait-timeout={_LOCK_WAIT_MS}", f"--file={path}"]
    run("pg_dump", [*options, f"--dbname={_conninfo(address)}"], address, writes=path)


def contents(path: Path) -> str:
    """The table of contents of a dump, which pg_restore reads to its end. Raises StoreUnusable."""
    return run("pg_restore", ["--list", str(path)], None)


def script(path: Path, target: Path) -> None:
    """Write a dump as an SQL script that drops what it makes first. Raises StoreUnusable, FileNotWritten."""
    run("pg_restore", ["--clean", "--if-exists", "--no-owner", f"--file={target}", str(path)], None, writes=target)


def run_scripts(address: PostgresqlAddress, scripts: Sequence[Path]) -> None:
    """Run SQL scripts one after the other in one transaction: all of them or nothing. Raises StoreUnusable."""
    options = ["--no-psqlrc", "--quiet", "--no-password", "--single-transaction", "--set=ON_ERROR_STOP=1"]
    files = [f"--file={one}" for one in scripts]
    run("psql", [*options, "--output=/dev/null", *files, f"--dbname={_conninfo(address)}"], address)


def require(program: str, address: PostgresqlAddress) -> None:
    """Raise StoreUnusable when a program is missing, or of an older major version than the server."""
    said = run(program, ["--version"], None)
    database = postgresql.database(address)
    try:
        with database.transaction(postgresql.BEGIN_READING) as connection:
            number = int(connection.value("SHOW server_version_num"))
    except DatabaseError as exc:
        raise translate(exc, store_name=address.shown) from exc
    finally:
        database.close()
    server, found = number // 10_000, _VERSION.search(said)
    if found is None or int(found[1]) < server:
        raise StoreUnusable(
            f"{program} is too old for the server of {address.shown}, which is PostgreSQL {server}: {said.strip()}",
            hint=f"install the programs of PostgreSQL {server}: apt-get install postgresql-client-{server}",
        )


def run(
    program: str, arguments: Sequence[str], address: PostgresqlAddress | None, *, writes: Path | None = None
) -> str:
    """Run one program to its end and return its output. writes: the file that it writes, for a full disk's error.

    address: of the database that the program connects to. Raises FileNotTrusted, StoreUnusable, FileNotWritten.
    """
    found = shutil.which(program)
    if found is None:
        raise StoreUnusable(
            f"{program} is not installed on this machine",
            hint="install PostgreSQL's client programs: apt-get install postgresql-client",
        )
    judge_program(found)
    if address is not None:
        judge_files(address.parameters)
    environment = {**os.environ, "LC_ALL": "C", **({} if address is None else _password(address))}
    try:
        done = subprocess.run(
            [found, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=environment,
            timeout=TIME_LIMIT_S,
        )
    except subprocess.TimeoutExpired as exc:
        raise StoreUnusable(f"{program} did not end within {TIME_LIMIT_S} s") from exc
    if done.returncode == 0:
        return done.stdout
    secrets = [] if address is None else [address.parameters[one] for one in SECRETS & address.parameters.keys()]
    said = without_words(" ".join(done.stderr.split()), secrets) or f"nothing, and ended with {done.returncode}"
    if writes is not None and is_full_answer(said):
        raise room_refused("the backup", writes)
    hint = "repair what it names, then run the command again"
    if any(words in said for words in _NOT_THE_OWNER):
        hint = "run the command as the role that owns the database"
    # Since PostgreSQL 17 pg_dump names all tables behind its error; warnings stand before it.
    shown = said if len(said) <= _SHOWN else f"{said[: _SHOWN // 2]} … {said[-_SHOWN // 2 :]}"
    raise StoreUnusable(f"{program} failed: {shown}", hint=hint)


def _conninfo(address: PostgresqlAddress) -> str:
    """The connection as libpq reads it, without the password: every user of the machine can see arguments."""
    from psycopg.conninfo import make_conninfo

    if "sslpassword" in address.parameters:
        raise UsageError("sslpassword in the store's URL cannot be handed to PostgreSQL's programs")
    options = {name: value for name, value in address.parameters.items() if name != "password"}
    return make_conninfo("", **{**postgresql.USUAL, **options})


def _password(address: PostgresqlAddress) -> dict[str, str]:
    password = address.parameters.get("password")
    return {} if password is None else {"PGPASSWORD": password}
