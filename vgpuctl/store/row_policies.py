# SPDX-License-Identifier: Apache-2.0
"""The rows that a tenant's role sees on PostgreSQL: one policy for each table, made when the store is made or upgraded.

A policy names no role. Who may read the whole table `role_tenants` sees every row of every table; a tenant's role may
read only its columns, and sees the rows of the tenant that stands there for it, or for a role of which it is a member.
So rights are granted and end without a lock on a table: a policy that is made waits for everybody who reads.
"""

from collections.abc import Iterator, Sequence

from vgpuctl.store.schema import VERSION_TABLE

POLICY = "vgpuctl_rows"

# A name of a table in a policy is its number, so that no other table of the name comes before it.
_SEES_EVERY_ROW = "(SELECT has_table_privilege('role_tenants'::regclass, 'SELECT'))"
_OWN_TENANT = "(SELECT tenant FROM role_tenants)"
_OUTLIVE_TENANT = {"events": "at", "usage": "begun_at", "traffic": "first_at", "licence_seats": "taken_at"}
"""Tables whose rows stay when a tenant is offboarded, and the column of their time."""
_RULES = {
    "role_tenants": "role IN (SELECT rolname FROM pg_roles WHERE pg_has_role(oid, 'USAGE'))",
    "tenants": f"name IN {_OWN_TENANT}",
    "addresses": "network_id IN (SELECT id FROM networks)",
    "ports": "network_id IN (SELECT id FROM networks)",
    "host_pools": "name IN (SELECT pool FROM host_pool_grants)",
    "host_pool_hosts": "pool IN (SELECT pool FROM host_pool_grants)",
    "settings": "name = 'instance'",
    "images": "true",
    "external_networks": "position('/' in name) = 0",
    VERSION_TABLE: "true",
}
"""Rows of tables without a column `tenant` that a tenant sees. Of all other such tables it sees no row."""


def columns_of_tables() -> dict[str, list[str]]:
    """The columns of each table of the store, by name of the table."""
    from vgpuctl.store.tables import metadata

    found = {table.name: [column.name for column in table.c] for table in metadata.sorted_tables}
    return {**dict(sorted(found.items())), VERSION_TABLE: []}


def policy_statements() -> Iterator[str]:
    """Replace the policies of all tables."""
    for name, columns in columns_of_tables().items():
        yield f"DROP POLICY IF EXISTS {POLICY} ON {name}"
        yield f"CREATE POLICY {POLICY} ON {name} USING ({_SEES_EVERY_ROW} OR {_rule(name, columns)})"
        yield f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY"


def tenant_grants(who: str) -> Iterator[str]:
    """Let a role, quoted, that has no rights on tables read what the policies show it."""
    columns_of = columns_of_tables()
    columns = ", ".join(columns_of.pop("role_tenants"))
    yield f"GRANT SELECT ON {', '.join(columns_of)} TO {who}"
    yield f"GRANT SELECT ({columns}) ON role_tenants TO {who}"


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def _rule(name: str, columns: Sequence[str]) -> str:
    if name in _RULES or "tenant" not in columns:
        return _RULES.get(name, "false")
    if name not in _OUTLIVE_TENANT:
        return f"tenant IN {_OWN_TENANT}"
    since = f"{name}.{_OUTLIVE_TENANT[name]} > role_tenants.since"
    return f"EXISTS (SELECT FROM role_tenants WHERE role_tenants.tenant = {name}.tenant AND {since})"
