# SPDX-License-Identifier: Apache-2.0
"""Names for completion: what the store has, read without making, migrating or locking it."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.store import samples
from tests.postgres_fixture import LocalPostgres
from tests.stored_fleet import AT
from tests.unit.fleet_factory import emulated_a40, host_facts
from vgpuctl.model.queue import QueueKind
from vgpuctl.store.database import insertion
from vgpuctl.store.names import CompletedKind, names, read_names
from vgpuctl.store.store import Store, open_store


@pytest.fixture
def filled(store: Store) -> Store:
    """A store with two tenants, three VMs and the facts of two hosts."""
    with store.transaction() as session:
        for tenant in ("acme", "umbrella"):
            session.add_tenant(tenant)
        for name, tenant in (("web-1", "acme"), ("web-2", "acme"), ("web-1", "umbrella")):
            session.add_vm(samples.vm(name, tenant))
        for number, host in enumerate(("gpu1", "gpu2")):
            facts = host_facts([emulated_a40(f"0000:4{number}:00.0").facts()], hostname=host)
            session.save_facts(host, facts, at=AT)
    return store


def test_names_of_each_kind_are_those_of_the_store(filled: Store, url: str) -> None:
    assert names(url, CompletedKind.TENANT) == ["acme", "umbrella"]
    assert names(url, CompletedKind.VM) == ["acme/web-1", "acme/web-2", "umbrella/web-1"]
    assert names(url, CompletedKind.VM, tenant="acme") == ["web-1", "web-2"]
    assert names(url, CompletedKind.HOST) == ["gpu1", "gpu2"]
    assert names(url, CompletedKind.GPU) == ["0000:40:00.0", "0000:41:00.0"]
    assert names(url, CompletedKind.GPU, host="gpu2") == ["0000:41:00.0"]
    assert "A40-8Q" in names(url, CompletedKind.PROFILE)


def test_names_of_a_tenant_are_found_behind_those_of_many_others(filled: Store, url: str) -> None:
    with samples.bare(filled) as connection:
        (row,) = connection.run("SELECT * FROM vms WHERE name = 'web-2'").rows
        for number in range(1000):
            other = {**vars(row), "uuid": samples.some_uuid(), "name": f"many-{number}"}
            connection.run(insertion("vms", other), **other)
    assert names(url, CompletedKind.VM, tenant="umbrella") == ["web-1"]
    assert len(names(url, CompletedKind.VM, tenant="acme")) == 1000


def test_labels_are_those_of_vms_and_of_the_queue(filled: Store, url: str) -> None:
    with filled.transaction() as session:
        vm = session.vm("acme", "web-1")
        assert vm is not None
        session.set_vm_labels(vm.uuid, (("app", "web"), ("env", "prod")))
        waiting = (replace(vm.request, name=one, labels=(("env", one),)) for one in ("q1", "q2"))
        session.join_queue(QueueKind.GANG, next(waiting), others=tuple(waiting))
    assert names(url, CompletedKind.LABEL) == ["app=web", "env=prod", "env=q1", "env=q2"]
    assert names(url, CompletedKind.LABEL, tenant="umbrella") == []


@pytest.mark.parametrize("kind", list(CompletedKind))
def test_the_query_of_every_kind_fits_the_store_s_tables(kind: CompletedKind, store: Store, url: str) -> None:
    assert read_names(url, kind) == []


@pytest.mark.parametrize("url", ["sqlite:////nowhere/store.db", "sqlite:///", "postgresql://nobody@127.0.0.1:1/none"])
def test_a_store_that_cannot_be_read_has_no_names_and_is_not_made(url: str, tmp_path: Path) -> None:
    assert names(url, CompletedKind.VM) == []
    assert names(f"sqlite:///{tmp_path}/store.db", CompletedKind.VM) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["", "?client_encoding=SQL_ASCII"])
def test_text_is_text_in_a_database_without_an_encoding(option: str, postgres: LocalPostgres) -> None:
    with postgres.create_database(template="template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'") as database:
        with open_store(f"{database}{option}") as store, store.transaction() as session:
            session.add_tenant("größe")
        with open_store(f"{database}{option}") as store, store.reading() as session:
            assert [one.name for one in session.tenants()] == ["größe"]
        assert names(f"{database}{option}", CompletedKind.TENANT) == ["größe"]
