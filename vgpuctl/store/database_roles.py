# SPDX-License-Identifier: Apache-2.0
"""The rights of PostgreSQL's roles on the store, granted by its owner.

An operator may add events and has no right to change or delete one, and none to say which role wrote it: the default of
the column does. Of the ledger it may only end what has begun. A tenant's role reads through policies that every row has
to pass (row-level security); other roles have a policy that lets every row pass.

Whose rows a tenant's role sees stands in the table `role_tenants`, so that its rights end with the row, which operators
may delete: a tenant of the same name that comes later is another one.
"""

import time
from collections.abc import Iterator, Sequence

from vgpuctl.errors import NotFound, StoreUnusable, UsageError
from vgpuctl.model.backup import StoreKind
from vgpuctl.model.database_role import Access, Rights
from vgpuctl.model.event import EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.store.events import EventRows
from vgpuctl.store.failures import BUSY_TIMEOUT_S, DatabaseError, is_busy, translate
from vgpuctl.store.schema import VERSION_TABLE

_EVERY_ROW = "vgpuctl_every_row"
_MOST_CONNECTIONS = 5
"""Of a tenant's role: one that takes all connections of the server keeps everybody else out."""
_CHOSEN_BY_THE_DATABASE = {"id", "database_role"}
_PAUSE_S = 0.05
_READERS = (
    "SELECT DISTINCT a.pid, a.usename AS role, a.application_name AS name FROM pg_locks l JOIN pg_class c "
    "ON c.oid = l.relation AND c.relnamespace = current_schema()::regnamespace "
    "JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.granted AND l.pid <> pg_backend_pid() "
    "AND l.database = (SELECT oid FROM pg_database "
    "WHERE datname = current_database()) ORDER BY a.pid"
)

_OWN_TENANT = "(SELECT tenant FROM role_tenants WHERE role = current_user)"
_SINCE = "(SELECT since FROM role_tenants WHERE role = current_user)"
_OWN_NETWORKS = f"network_id IN (SELECT id FROM networks WHERE tenant = {_OWN_TENANT})"
_OWN_POOLS = f"{{column}} IN (SELECT pool FROM pool_grants WHERE tenant = {_OWN_TENANT})"
_OUTLIVE_TENANT = {"events": "at", "usage": "begun_at", "licence_seats": "taken_at"}
"""Tables whose rows stay when a tenant is offboarded, and the column of their time."""
_ENDED_ONLY = {"usage": "ended_at"}
"""Tables of which an operator may change this column alone, and delete nothing."""
_RULES = {
    "role_tenants": "role = current_user",
    "tenants": f"name = {_OWN_TENANT}",
    "addresses": _OWN_NETWORKS,
    "ports": _OWN_NETWORKS,
    "pools": _OWN_POOLS.replace("{column}", "name"),
    "pool_hosts": _OWN_POOLS.replace("{column}", "pool"),
    "images": "true",
    "external_networks": "true",
    VERSION_TABLE: "true",
}
"""Rows of tables without a column `tenant` that a tenant sees. Of all other such tables it sees no row."""


class DatabaseRoleRows(EventRows):
    """Grant rights to a role."""

    def grant_role(self, role: str, rights: Rights) -> tuple[list[str], bool]:
        """Give a role these rights on the store and no others. Returns the statements, and whether anything changed.

        Raises UsageError on SQLite and for a role that no right restricts, NotFound for a role that is not there,
        StoreUnusable for one who does not own the store.
        """
        if self._connection.kind is not StoreKind.POSTGRESQL:
            raise UsageError(
                f"the store {self._store_name} is an SQLite file, which has no roles",
                hint="who may read and write the file may do everything: see `ls -l`; PostgreSQL has roles",
            )
        schema, owner = self._check(role)
        before = self._rights_of(role)
        statements = list(self._statements(role, rights, schema, owner))
        if any(" POLICY " in one for one in statements):
            self._lock_tables()
        for statement in statements:
            self._write(statement)
        self._delete("role_tenants", role=role)
        if rights.tenant is not None:
            last = self.events(1, EventFilter((rights.tenant,), (EventKind.TENANT_OFFBOARDED,)))
            self._insert("role_tenants", role=role, tenant=rights.tenant, since=last[0].at if last else 0.0)
        after = self._rights_of(role)
        if after != before:
            last = self.events(1, EventFilter((role,), (EventKind.ROLE_GRANTED,)))
            self.add_event(
                EventKind.ROLE_GRANTED,
                role,
                tenant=rights.tenant,
                before={"as": last[0].after.get("as") if last else None},
                after={"as": str(rights)},
                evidence={"rights": after},
            )
        return statements, after != before

    def _lock_tables(self) -> None:
        """Lock all tables against readers too, which a policy needs. Raises StoreUnusable where that does not succeed.

        Every transaction of vgpuctl begins with the settings, so none is in the middle of its work once these are ours.
        For other programs it waits with none of the tables in hand: with them it would be in a deadlock.
        """
        self._write("LOCK TABLE settings IN ACCESS EXCLUSIVE MODE")
        tables = ", ".join(sorted(_columns()))
        give_up = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            self._write("SAVEPOINT unlocked")
            try:
                self._connection.run(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE NOWAIT")
                return
            except DatabaseError as exc:
                if not is_busy(exc):
                    raise translate(exc, store_name=self._store_name) from exc
            self._write("ROLLBACK TO SAVEPOINT unlocked")
            if time.monotonic() > give_up:
                found = self._read(_READERS)
                raise StoreUnusable(
                    f"the tables of the store {self._store_name} were in use for {BUSY_TIMEOUT_S} s",
                    context=[f"{one.name or 'a program'} of the role {one.role} (pid {one.pid})" for one in found],
                    hint="run the command again, or end what reads for long: SELECT pg_terminate_backend(PID)",
                )
            time.sleep(_PAUSE_S)

    def roles_of(self, tenant: str) -> list[str]:
        """The roles of the database that see a tenant's rows."""
        return [row.role for row in self._find("role_tenants", order="role", tenant=tenant)]

    def end_roles_of(self, tenant: str) -> None:
        """Let the roles that see a tenant's rows see none any more. What they were granted shows them nothing then."""
        self._delete("role_tenants", tenant=tenant)

    def _check(self, role: str) -> tuple[str, str]:
        """The store's schema and owner, if this connection may grant rights and the role can be restricted by them."""
        (found,) = self._read(
            "SELECT n.nspname, pg_get_userbyid(c.relowner) AS owner, pg_has_role(c.relowner, 'MEMBER') AS is_owner, "
            "r.rolname IS NOT NULL AS is_there, r.rolsuper OR r.rolbypassrls AS is_free, "
            "pg_has_role(r.oid, c.relowner, 'MEMBER') AS owns FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace LEFT JOIN pg_roles r ON r.rolname = :role "
            "WHERE c.oid = to_regclass(:table)",
            role=role,
            table=VERSION_TABLE,
        )
        if not found.is_owner:
            raise StoreUnusable(
                f"only the owner of the store {self._store_name} can grant rights on it",
                hint=f"connect as the role {found.owner}",
            )
        if not found.is_there:
            raise NotFound(
                f"the database server has no role {role!r}", hint=f"create it first: createuser --pwprompt {role}"
            )
        if found.is_free or found.owns:
            raise UsageError(
                f"the role {role} is a superuser, bypasses row security, or owns the store: no right restricts it",
                hint="grant rights to another role, and let operators and tenants connect as that one",
            )
        return str(found.nspname), str(found.owner)

    def _statements(self, role: str, rights: Rights, schema: str, owner: str) -> Iterator[str]:
        who, where = _quoted(role), _quoted(schema)
        default = f"ALTER DEFAULT PRIVILEGES FOR ROLE {_quoted(owner)} IN SCHEMA {where}"
        for kind in ("TABLES", "SEQUENCES"):
            yield f"REVOKE ALL ON ALL {kind} IN SCHEMA {where} FROM {who}"
            yield f"{default} REVOKE ALL ON {kind} FROM {who}"
        yield f"REVOKE ALL ON SCHEMA {where} FROM {who}"
        for table, policy in self._policies(role):
            yield f"DROP POLICY {_quoted(policy)} ON {table}"
        if rights.access is Access.NONE:
            return
        yield f"GRANT USAGE ON SCHEMA {where} TO {who}"
        if rights.access is Access.TENANT:
            yield from self._connection_limit(role)
            yield from self._tenant_statements(who, _policy_of(role))
            return
        yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {where} TO {who}"
        yield f"{default} GRANT SELECT ON TABLES TO {who}"
        if rights.access is Access.OPERATOR:
            changes = "INSERT, UPDATE, DELETE"
            yield f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {where} TO {who}"
            yield f"{default} GRANT USAGE ON SEQUENCES TO {who}"
            yield f"{default} GRANT {changes} ON TABLES TO {who}"
            columns_of = _columns()
            names = columns_of.keys() - {"events", "role_tenants", VERSION_TABLE, *_ENDED_ONLY}
            yield f"GRANT {changes} ON {', '.join(sorted(names))} TO {who}"
            yield f"GRANT DELETE ON role_tenants TO {who}"
            for name, column in _ENDED_ONLY.items():
                yield f"GRANT INSERT, UPDATE ({column}) ON {name} TO {who}"
            columns = [name for name in columns_of["events"] if name not in _CHOSEN_BY_THE_DATABASE]
            yield f"GRANT INSERT ({', '.join(columns)}) ON events TO {who}"

    def _connection_limit(self, role: str) -> Iterator[str]:
        """Limit the connections of a tenant's role, or leave a limit that is lower. Raises StoreUnusable, UsageError.

        A role that may become another one by SET ROLE would see what that one sees.
        """
        (found,) = self._read(_LIMITS_OF_ROLE, role=role)
        if found.others:
            raise UsageError(
                f"the role {role} is a member of {', '.join(found.others)}, and would see what they see",
                hint=f'REVOKE "{found.others[0]}" FROM "{role}"',
            )
        if 0 <= found.connections <= _MOST_CONNECTIONS:
            return
        statement = f"ALTER ROLE {_quoted(role)} CONNECTION LIMIT {_MOST_CONNECTIONS}"
        if not found.may_alter:
            raise StoreUnusable(
                f"the role {role} may fill the connections of the database server, and {found.this} may not limit it",
                hint=f"let a superuser run `{statement}`, then run the command again",
            )
        yield statement

    def _tenant_statements(self, who: str, policy: str) -> Iterator[str]:
        open_tables = {row.tablename for row in self._read(_POLICIES) if row.policyname == _EVERY_ROW}
        columns_of = _columns()
        for name, columns in sorted(columns_of.items()):
            if name not in open_tables:
                yield f"CREATE POLICY {_EVERY_ROW} ON {name} USING (true) WITH CHECK (true)"
                yield f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY"
            rule = _rule(name, columns)
            yield f"CREATE POLICY {policy} ON {name} AS RESTRICTIVE FOR SELECT TO {who} USING ({rule})"
        yield f"GRANT SELECT ON {', '.join(sorted(columns_of))} TO {who}"

    def _policies(self, role: str) -> list[tuple[str, str]]:
        """The restricting policies of a role: table and name."""
        return [
            (row.tablename, row.policyname)
            for row in self._read(_POLICIES)
            if row.permissive == "RESTRICTIVE" and list(row.roles) == [role]
        ]

    def _rights_of(self, role: str) -> list[str]:
        """The rights of the role, one line for each kind of right on a table, a column or a sequence, sorted.

        Of a tenant's role also whose rows it sees.
        """
        rows = self._read(
            "SELECT 'rows' AS what, tablename AS thing, qual AS right FROM pg_policies "
            "WHERE schemaname = current_schema() AND permissive = 'RESTRICTIVE' AND roles = ARRAY[:role]::name[] "
            "UNION ALL SELECT 'table', c.relname, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a, pg_roles r "
            "WHERE c.relnamespace = current_schema()::regnamespace AND a.grantee = r.oid AND r.rolname = :role "
            "UNION ALL SELECT 'column', c.relname || '.' || t.attname, a.privilege_type FROM pg_class c, "
            "pg_attribute t, aclexplode(t.attacl) a, pg_roles r WHERE t.attrelid = c.oid "
            "AND c.relnamespace = current_schema()::regnamespace AND a.grantee = r.oid AND r.rolname = :role",
            role=role,
        )
        whose = [f"tenant {row.tenant}: since {row.since}" for row in self._find("role_tenants", role=role)]
        return whose + sorted(f"{row.what} {row.thing}: {row.right}" for row in rows)


_POLICIES = (
    "SELECT tablename, policyname, permissive, roles FROM pg_policies WHERE schemaname = current_schema() "
    "ORDER BY tablename, policyname"
)


_LIMITS_OF_ROLE = (
    "SELECT current_user AS this, r.rolconnlimit AS connections, m.rolsuper OR (m.rolcreaterole AND "
    "(current_setting('server_version_num')::int < 160000 OR pg_has_role(r.oid, 'MEMBER WITH ADMIN OPTION'))) "
    "AS may_alter, ARRAY(SELECT o.rolname::text FROM pg_roles o WHERE o.oid <> r.oid AND NOT r.rolsuper "
    "AND pg_has_role(r.oid, o.oid, 'MEMBER') AND has_table_privilege(o.oid, 'vms', 'SELECT') ORDER BY 1) AS others "
    "FROM pg_roles r, pg_roles m WHERE r.rolname = :role AND m.rolname = current_user"
)


def _columns() -> dict[str, list[str]]:
    """The columns of each table of the store."""
    from vgpuctl.store.tables import metadata

    found = {table.name: [column.name for column in table.c] for table in metadata.sorted_tables}
    return {**found, VERSION_TABLE: []}


def _quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def _policy_of(role: str) -> str:
    """The policy's name, quoted; PostgreSQL cuts names at 63 bytes, and a role's name has as many."""
    return _quoted(f"of {role}"[:60])


def _rule(name: str, columns: Sequence[str]) -> str:
    if name in _RULES or "tenant" not in columns:
        return _RULES.get(name, "false")
    since = f" AND {_OUTLIVE_TENANT[name]} > {_SINCE}" if name in _OUTLIVE_TENANT else ""
    return f"tenant = {_OWN_TENANT}{since}"
