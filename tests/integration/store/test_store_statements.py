# SPDX-License-Identifier: Apache-2.0
"""Statements as text with values by name: the same text gives the same answer on both databases."""

import pytest

from tests.integration.store.samples import bare
from vgpuctl.errors import ConcurrentChange, StoreUnusable
from vgpuctl.store.failures import DatabaseError
from vgpuctl.store.store import Store

ODD = ["plain", "it's", 'a "b"', "100 %s", ":name", "::text", "%(name)s", "ü\N{SNOWMAN}", ""]


@pytest.fixture
def named(store: Store) -> Store:
    """A store with a tenant for each odd name."""
    with store.transaction() as session:
        for name in ODD:
            assert session.add_tenant(name)
    return store


def test_a_value_comes_back_as_it_was_whatever_stands_in_it(named: Store) -> None:
    with bare(named) as connection:
        for name in ODD:
            (row,) = connection.run("SELECT name FROM tenants WHERE name = :name", name=name).rows
            assert row.name == name


def test_a_list_stands_for_one_of_its_values_and_an_empty_one_for_none(named: Store) -> None:
    query = "SELECT name FROM tenants WHERE name IN :name_of OR name = :name ORDER BY name"
    with bare(named) as connection:
        assert [row.name for row in connection.run(query, name_of=["it's", ":name"], name="plain").rows] == sorted(
            ["it's", ":name", "plain"]
        )
        assert connection.run(query, name_of=[], name="none").rows == []


def test_signs_of_the_drivers_in_the_text_are_left_alone(named: Store) -> None:
    with bare(named) as connection:
        query = "SELECT name FROM tenants WHERE name LIKE '100 %' AND name <> ':name' AND created_at > :since"
        assert connection.value(query, since=0) == "100 %s"
        assert connection.value("SELECT name FROM tenants WHERE name LIKE '100 %'") == "100 %s"


def test_a_change_tells_how_many_rows_it_changed(named: Store) -> None:
    with bare(named) as connection:
        assert connection.run("UPDATE tenants SET grace_s = 5 WHERE name IN :names", names=ODD[:3]).changed == 3
        assert connection.run("DELETE FROM tenants WHERE name = :name", name="none").changed == 0


def test_columns_without_a_value_are_found_and_set(named: Store) -> None:
    with named.transaction() as session:
        assert session._update("tenants", {"name": "plain", "grace_s": None}, grace_s=7.5) == 1
        assert session._update("tenants", {"grace_s": 7.5}, grace_s=None, name="renamed") == 1
        assert len(session._find("tenants", grace_s=None)) == len(ODD)
        assert session._delete("tenants", name=["renamed", "it's"]) == 2


def test_booleans_come_back_as_booleans(named: Store) -> None:
    with named.transaction() as session:
        session.set_guest_probe("plain", allowed=True)
        found = {row.name: row.guest_probe for row in session._find("tenants")}
    assert found["plain"] is True and found["it's"] is None


def test_a_refused_row_and_a_wrong_statement_are_told_apart(named: Store) -> None:
    with pytest.raises(ConcurrentChange, match="taken"), named.transaction() as session:
        session._insert("tenants", name="plain", created_at=1.0, conflict="the name is taken")
    with pytest.raises(DatabaseError, match="nothing"), bare(named) as connection:
        connection.run("SELECT * FROM nothing")
    with named.reading() as session:
        assert len(session.tenants()) == len(ODD)


def test_a_number_of_more_than_64_bits_is_refused_by_both_databases(store: Store) -> None:
    with pytest.raises(StoreUnusable, match=r"too large|out of range"), store.transaction() as session:
        session.events(2**64)
    with store.transaction() as session:
        assert session.add_tenant("acme")
