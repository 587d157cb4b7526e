# SPDX-License-Identifier: Apache-2.0
"""Stores of older schemas become as new ones, with what is in them."""

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from tests.integration.store.samples import bare, network, some_uuid
from vgpuctl.model.security_rule import Protocol, Rule
from vgpuctl.model.vpc import SecurityGroup
from vgpuctl.store import tables
from vgpuctl.store.schema import VERSION_TABLE
from vgpuctl.store.store import Store, open_store

_TO_0002 = ("DROP TABLE traffic", f"UPDATE {VERSION_TABLE} SET version_num = '0002'")
_TO_0001 = (
    *_TO_0002,
    "DROP INDEX ix_ports_network_id_address6",
    "ALTER TABLE ports DROP COLUMN address6",
    """UPDATE vpc_objects SET spec = replace(spec, '"source":"any"', '"source":"0.0.0.0/0"')""",
    f"UPDATE {VERSION_TABLE} SET version_num = '0001'",
)


def test_ports_and_rules_of_0001_are_kept(url: str, store: Store) -> None:
    made = network()
    group = SecurityGroup("web", (Rule(Protocol.TCP, (80, 80)), Rule(source="10.9.0.0/24"), Rule(source="group:web")))
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_network(made)
        port = session.add_port(made, some_uuid())
        session.set_vpc_object("acme", group)
    with bare(store) as connection:
        for statement in _TO_0001:
            connection.run(statement)
        assert "0.0.0.0/0" in connection.run("SELECT spec FROM vpc_objects").rows[0].spec
    store.close()
    with open_store(url) as opened, opened.reading() as session:
        assert session.ports() == [port]
        assert session.vpc_objects("acme", SecurityGroup) == [group]
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, tables.complete_metadata()) == []
    engine.dispose()
