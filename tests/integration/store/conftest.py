# SPDX-License-Identifier: Apache-2.0
"""Every store test runs on SQLite and on a real PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_fixture import LocalPostgres
from vgpuctl.store.store import Store, open_store


@pytest.fixture(scope="session")
def migrated(postgres: LocalPostgres) -> Iterator[str]:
    """Name of a PostgreSQL database with an empty store, to be copied: quicker than migrating each time."""
    with postgres.create_database() as database:
        open_store(database).close()
        yield database.rpartition("/")[2]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a store, which does not exist yet unless the test asks for `store` too."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db"
    else:
        server: LocalPostgres = request.getfixturevalue("postgres")
        copied = request.getfixturevalue("migrated") if "store" in request.fixturenames else "template1"
        with server.create_database(template=copied) as database:
            yield database


class Clock:
    """A clock that the test sets."""

    now = 1_700_000_000.25

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The time of rows."""
    return Clock()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key file as docs/store.md tells to make one."""
    path = tmp_path / "operator.key"
    path.write_text("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def store(url: str, clock: Clock, key: Path) -> Iterator[Store]:
    """An open, empty store."""
    with open_store(url, clock=clock, key_file=key) as opened:
        yield opened
