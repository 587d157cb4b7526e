# SPDX-License-Identifier: Apache-2.0
"""Every store test runs on SQLite and on a real PostgreSQL."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.integration.store.samples import host_facts, lease, reserve, vf_share, vm
from tests.postgres_fixture import LocalPostgres
from vgpuctl.model.database_role import Access, Rights
from vgpuctl.store.store import Store, open_store

OPERATOR, READER, TENANT = Rights(Access.OPERATOR), Rights(Access.READ_ONLY), Rights(Access.TENANT, "acme")


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


@dataclass(frozen=True)
class Fleet:
    """A store with the VMs of two tenants, and its owner's URL."""

    url: str
    new_role: Callable[[Rights], str]


@pytest.fixture
def fleet(postgres: LocalPostgres, migrated: str) -> Iterator[Fleet]:
    made: list[str] = []
    with postgres.create_database(template=migrated) as url:

        def new_role(rights: Rights) -> str:
            name, password = f"role-{secrets.token_hex(4)}", secrets.token_hex(8)
            postgres.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{password}'")
            made.append(name)
            with open_store(url) as store, store.transaction() as session:
                session.grant_role(name, rights)
            return make_url(url).set(username=name, password=password).render_as_string(hide_password=False)

        with open_store(url) as store, store.transaction() as session:
            session.save_facts("gpu1", host_facts(), 1.0)
            for number, tenant in enumerate(("acme", "umbrella")):
                session.add_tenant(tenant)
                session.add_vm(vm("web", tenant=tenant))
                reserve(session, replace(lease(vf_share(f"0000:41:00.{number + 2}")), tenant=tenant, vm_name="web"))
        yield Fleet(url, new_role)
    for name in made:
        postgres.execute(f'DROP ROLE "{name}"')
