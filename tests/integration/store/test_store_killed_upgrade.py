# SPDX-License-Identifier: Apache-2.0
"""The upgrade of a store is killed before each of its statements: the store is of the old version or of the new one."""

import itertools
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, inspect, text

from tests import next_version
from tests.postgres_fixture import LocalPostgres
from vgpuctl.store.database import Answer, StoreConnection
from vgpuctl.store.schema import SCHEMA_VERSION, VERSION_TABLE
from vgpuctl.store.store import open_store

_CONTEXT = multiprocessing.get_context("forkserver")  # the process of the tests may have threads
_CONTEXT.set_forkserver_preload(["vgpuctl.store.store", "alembic.command"])


def _upgrade_until(url: str, last: int) -> int:
    """Upgrade in a process that kills itself before statement number `last`, or its commit. Returns the exit code."""
    process = _CONTEXT.Process(target=upgrade_until, args=(url, last))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def upgrade_until(url: str, last: int) -> None:
    """Upgrade to the next version. Run in a process of its own."""
    count = 0

    def step(*_arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def run(connection: StoreConnection, sql: str, /, **values: object) -> Answer:
        step()
        return of_store(connection, sql, **values)

    of_store = StoreConnection.run
    event.listen(Engine, "before_cursor_execute", step)
    event.listen(Engine, "commit", step)
    with pytest.MonkeyPatch.context() as patched:
        next_version.become(patched.setattr)
        patched.setattr(StoreConnection, "run", run)
        open_store(url).close()


def _shape(url: str) -> tuple[str, dict[str, list[str]]]:
    """The schema's version, and every table with its columns, indexes and constraints."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.connect() as connection:
            version = str(connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one())
            found = inspect(connection)
            tables = {
                name: [
                    *sorted(f"{one['name']} {one['type']} {one['nullable']}" for one in found.get_columns(name)),
                    *sorted(str(one["name"]) for one in found.get_indexes(name)),
                    *sorted(str(one["name"]) for one in found.get_unique_constraints(name)),
                    *sorted(str(one["referred_table"]) for one in found.get_foreign_keys(name)),
                ]
                for name in found.get_table_names()
            }
            rows = connection.execute(text("SELECT name FROM tenants ORDER BY name")).scalars().all()
            return version, {**tables, "rows of tenants": [str(one) for one in rows]}
    finally:
        engine.dispose()


Copies = Callable[[], str]


_ON_POSTGRESQL = pytest.mark.long(
    "tests/integration/store/test_store_killed_upgrade.py::test_an_upgrade_that_is_killed_anywhere_is_not_begun_or_done"
)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=_ON_POSTGRESQL)])
def copies(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Copies]:
    """Gives the URL of a new copy of a store of this version each time; the one before is gone then."""
    if request.param == "sqlite":
        next_version.fill_store(f"sqlite:///{tmp_path}/old.db")

        def copied() -> str:
            for path in tmp_path.glob("store.db*"):
                path.unlink()
            shutil.copy(tmp_path / "old.db", tmp_path / "store.db")
            return f"sqlite:///{tmp_path}/store.db"

        yield copied
        return
    server: LocalPostgres = request.getfixturevalue("postgres")
    with server.create_database() as old:
        next_version.fill_store(old)
        name = f"{old.rpartition('/')[2]}_copy"

        def made() -> str:
            server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            server.execute(f"CREATE DATABASE {name} TEMPLATE {old.rpartition('/')[2]}")
            return server.url(name)

        yield made
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


ALL = bool(os.environ.get("VGPUCTL_TESTS_ALL_KILL_POINTS"))
EVERY = {"sqlite": 1 if ALL else 5, "postgresql": 1 if ALL else 15}
"""Of how many statements one is tried. Three of four on PostgreSQL are its policies of rows."""


def test_an_upgrade_that_is_killed_anywhere_is_not_begun_or_done(copies: Copies) -> None:
    url = copies()
    old = _shape(url)
    assert old[0] == SCHEMA_VERSION
    assert _upgrade_until(url, 0) == 0
    new = _shape(url)
    assert new[0] == next_version.SCHEMA
    ends = {old[0]: 0, new[0]: 0}
    for number in itertools.count(2, EVERY[url.partition(":")[0]]):
        url = copies()
        status = _upgrade_until(url, number)
        if status == 0:
            break
        assert status == -signal.SIGKILL, f"statement {number}"
        shape = _shape(url)
        assert shape in (old, new), f"killed before statement {number}"
        ends[shape[0]] += 1
        if number % 4 == 0:
            assert _upgrade_until(url, 0) == 0
            assert _shape(url) == new
    assert ends[old[0]] > 7, ends
    assert _shape(url) == new
