# SPDX-License-Identifier: Apache-2.0
"""grant-store: people and services connect to PostgreSQL as roles with the rights they need."""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.e2e.operator import Operator
from tests.postgres_fixture import LocalPostgres


@pytest.fixture
def owner(postgres: LocalPostgres, tmp_path: Path) -> Iterator[Operator]:
    """The owner of a new database, with two tenants."""
    inventory = tmp_path / "inventory.yml"
    inventory.write_text("all: {hosts: {gpu1: {}}}\n")
    with postgres.create_database() as url:
        made = Operator(tmp_path, inventory, url)
        for tenant in ("acme", "umbrella"):
            made.does("create-tenant", tenant)
        yield made


@pytest.fixture
def person(owner: Operator, postgres: LocalPostgres) -> Iterator[Operator]:
    """Somebody with a role of its own."""
    role, password = f"role-{secrets.token_hex(4)}", secrets.token_hex(8)
    postgres.execute(f"CREATE ROLE \"{role}\" LOGIN PASSWORD '{password}'")
    url = make_url(owner.database).set(username=role, password=password).render_as_string(hide_password=False)
    yield replace(owner, database=url)
    owner.does("grant-store", "--role", role, "--as", "none")
    postgres.execute(f'DROP ROLE "{role}"')


def _role(person: Operator) -> str:
    return make_url(person.database).username or ""


def test_an_operator_works_and_its_role_is_in_the_events(owner: Operator, person: Operator) -> None:
    dry = owner.does("grant-store", "--role", _role(person), "--as", "operator", "--dry-run")
    assert "GRANT INSERT" in dry.out
    assert "would be operator" in dry.err
    assert person.run("list-tenants").code != 0
    assert owner.json("grant-store", "--role", _role(person), "--as", "operator")["changed"]
    assert not owner.json("grant-store", "--role", _role(person), "--as", "operator")["changed"]
    person.does("set-quota", "acme", "vms=4")
    last = person.json("list-events")[-1]
    assert (last["kind"], last["database_role"]) == ("quota-set", _role(person))
    assert f" as {_role(person)} " in person.does("list-events", "--limit", "1").out
    assert {one["kind"] for one in person.json("list-events", "--role", _role(person))} == {"quota-set"}
    assert person.json("list-events", "--role", "nobody-else") == []
    refused = person.is_refused("grant-store", "--role", _role(person), "--as", "none")
    assert "only the owner" in refused["message"]


def test_a_reader_reads_and_a_change_is_refused_before_anything_is_done(owner: Operator, person: Operator) -> None:
    owner.does("grant-store", "--role", _role(person), "--as", "read-only")
    for command in ("list-tenants", "list-vms", "list-events", "list-queue", "show-usage", "list-networks"):
        person.does(command)
    refused = person.is_refused("create-tenant", "third")
    assert refused["reference"] == "store-unusable"
    assert "may only read" in refused["message"]
    for arguments in ((), ("--once",)):
        assert "may only read" in person.is_refused("controller", *arguments)["message"]


def test_a_tenant_reads_its_own(owner: Operator, person: Operator) -> None:
    owner.does("grant-store", "--role", _role(person), "--as", "tenant:acme")
    for command in ("list-vms", "list-queue", "show-usage", "list-networks", "list-reservations", "list-host-pools"):
        person.does(command)
    assert [one["tenant"] for one in person.json("list-tenants")] == ["acme"]
    assert {one["tenant"] for one in person.json("list-events")} == {"acme"}
    assert owner.is_refused("grant-store", "--role", _role(person), "--as", "tenant:nobody")["reference"] == "not-found"


@pytest.mark.parametrize("rights", ["operator", "read-only", "tenant:acme"])
def test_a_backup_is_the_owners(owner: Operator, person: Operator, tmp_path: Path, rights: str) -> None:
    owner.does("grant-store", "--role", _role(person), "--as", rights)
    refused = person.is_refused("backup-store", str(tmp_path / "backup"))
    assert "as the role that owns the database" in refused["hint"], refused
    assert not (tmp_path / "backup").exists()


def test_a_file_has_no_roles(tmp_path: Path, owner: Operator) -> None:
    file = replace(owner, database=f"sqlite:///{tmp_path}/store.db")
    assert "no roles" in file.is_refused("grant-store", "--role", "ann", "--as", "operator")["message"]
