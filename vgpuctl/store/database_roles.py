# SPDX-License-Identifier: Apache-2.0
"""The rights of PostgreSQL's roles on the store, granted by its owner.

An operator may add events and has no right to change or delete one, and none to say which role wrote it: the default of
the column does. Of the ledger of usage it may only end what has begun and rename its VM, and of that of traffic only
add.

The table `role_tenants` names the tenant whose rows a role sees (vgpuctl.store.row_policies). The role's rights end
when operators delete the row, so a later tenant of the same name is not visible to it.
"""

from collections.abc import Iterator

from vgpuctl.errors import NotFound, StoreUnusable, UsageError
from vgpuctl.model.backup import StoreKind
from vgpuctl.model.database_role import Access, Rights
from vgpuctl.model.event import EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.store.events import EventRows
from vgpuctl.store.row_policies import columns_of_tables, quoted, tenant_grants
from vgpuctl.store.schema import VERSION_TABLE

_MOST_CONNECTIONS = 5
"""Of a tenant's role: one that takes all connections of the server keeps everybody else out."""
_CHOSEN_BY_THE_DATABASE = {"id", "database_role"}
_LEDGERS = {
    "usage": "ended_at, vm_name",
    "traffic": "name, received_bytes, sent_bytes, received_packets, sent_packets, last_at",
}
"""Tables of which an operator may change these columns alone, and delete nothing."""


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
        if rights.access is not Access.NONE:
            self._refuse_powers(role, owner, rights.access)
        before = self._rights_of(role)
        statements = list(self._statements(role, rights, schema, owner))
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

    def roles_of(self, tenant: str) -> list[str]:
        """The roles of the database that see a tenant's rows."""
        return [row.role for row in self._find("role_tenants", order="role", tenant=tenant)]

    def end_roles_of(self, tenant: str) -> None:
        """End the access of a tenant's roles. Their grants stay, but show them no rows."""
        self._delete("role_tenants", tenant=tenant)

    def _check(self, role: str) -> tuple[str, str]:
        """The store's schema and owner, if this connection may grant rights and the role can be restricted by them."""
        (found,) = self._read(
            "SELECT n.nspname, pg_get_userbyid(c.relowner) AS owner, pg_has_role(c.relowner, 'MEMBER') AS is_owner, "
            "r.rolname IS NOT NULL AS is_there FROM pg_class c JOIN pg_namespace n "
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
        return str(found.nspname), str(found.owner)

    def _refuse_powers(self, role: str, owner: str, access: Access) -> None:
        """Refuse a role that PostgreSQL lets do more than its rights on tables say, or become one that may.

        Raises UsageError.
        """
        for row in self._read(_ROLES_OF, role=role):
            powers = [said for attribute, said in _POWERS.items() if getattr(row, attribute)]
            powers += ["owns the store"] * (row.name == owner)
            if row.is_predefined and (access is Access.TENANT or row.name in _BEYOND_TABLES):
                powers.append("reaches beyond the store")
            if row.rolcreatedb and access is Access.TENANT:
                powers.append("may create databases")
            if not powers:
                continue
            is_itself = row.name == role
            who = f"the role {role}" if is_itself else f"the role {role} is a member of {row.name}, which"
            raise UsageError(
                f"{who} {' and '.join(powers)}: no right restricts it",
                hint="grant rights to another role, and let operators and tenants connect as that one"
                if is_itself
                else f"REVOKE {quoted(row.name)} FROM {quoted(role)}, or grant rights to another role",
            )

    def _statements(self, role: str, rights: Rights, schema: str, owner: str) -> Iterator[str]:
        who, where = quoted(role), quoted(schema)
        default = f"ALTER DEFAULT PRIVILEGES FOR ROLE {quoted(owner)} IN SCHEMA {where}"
        for kind in ("TABLES", "SEQUENCES"):
            yield f"REVOKE ALL ON ALL {kind} IN SCHEMA {where} FROM {who}"
            yield f"{default} REVOKE ALL ON {kind} FROM {who}"
        yield f"REVOKE ALL ON SCHEMA {where} FROM {who}"
        if rights.access is Access.NONE:
            return
        yield f"GRANT USAGE ON SCHEMA {where} TO {who}"
        if rights.access is Access.TENANT:
            yield from self._connection_limit(role)
            yield from self._without_temporary_tables(role)
            yield from tenant_grants(who)
            return
        yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {where} TO {who}"
        yield f"{default} GRANT SELECT ON TABLES TO {who}"
        if rights.access is Access.OPERATOR:
            changes = "INSERT, UPDATE, DELETE"
            yield f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {where} TO {who}"
            yield f"{default} GRANT USAGE ON SEQUENCES TO {who}"
            yield f"{default} GRANT {changes} ON TABLES TO {who}"
            columns_of = columns_of_tables()
            names = columns_of.keys() - {"events", "role_tenants", VERSION_TABLE, *_LEDGERS}
            yield f"GRANT {changes} ON {', '.join(sorted(names))} TO {who}"
            yield f"GRANT DELETE ON role_tenants TO {who}"
            for name, changed in _LEDGERS.items():
                yield f"GRANT INSERT, UPDATE ({changed}) ON {name} TO {who}"
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
        statement = f"ALTER ROLE {quoted(role)} CONNECTION LIMIT {_MOST_CONNECTIONS}"
        if not found.may_alter:
            raise StoreUnusable(
                f"the role {role} may fill the connections of the database server, and {found.this} may not limit it",
                hint=f"let a superuser run `{statement}`, then run the command again",
            )
        yield statement

    def _without_temporary_tables(self, role: str) -> Iterator[str]:
        """Take the right to make temporary tables from all roles, with which a tenant's could fill the server's disk.

        Only the owner of the database can; vgpuctl makes none.
        """
        (found,) = self._read(_TEMPORARY, role=role)
        if found.has and found.may_revoke:
            yield f"REVOKE TEMPORARY ON DATABASE {quoted(found.name)} FROM PUBLIC, {quoted(role)}"

    def _rights_of(self, role: str) -> list[str]:
        """The rights of the role, one line for each kind of right on a table, a column or a sequence, sorted.

        Of a tenant's role also whose rows it sees.
        """
        rows = self._read(
            "SELECT 'table' AS what, c.relname AS thing, a.privilege_type AS right "
            "FROM pg_class c, aclexplode(c.relacl) a, pg_roles r "
            "WHERE c.relnamespace = current_schema()::regnamespace AND a.grantee = r.oid AND r.rolname = :role "
            "UNION ALL SELECT 'column', c.relname || '.' || t.attname, a.privilege_type FROM pg_class c, "
            "pg_attribute t, aclexplode(t.attacl) a, pg_roles r WHERE t.attrelid = c.oid "
            "AND c.relnamespace = current_schema()::regnamespace AND a.grantee = r.oid AND r.rolname = :role",
            role=role,
        )
        whose = [f"tenant {row.tenant}: since {row.since}" for row in self._find("role_tenants", role=role)]
        return whose + sorted(f"{row.what} {row.thing}: {row.right}" for row in rows)


_POWERS = {
    "rolsuper": "is a superuser",
    "rolbypassrls": "bypasses row security",
    "rolcreaterole": "may create roles and grant them",
    "rolreplication": "may copy the whole server",
    "owns_database": "owns the database",
}
_BEYOND_TABLES = {
    "pg_write_all_data",
    "pg_execute_server_program",
    "pg_read_server_files",
    "pg_write_server_files",
    "pg_signal_backend",
    "pg_maintain",
}
"""Predefined roles of which an operator or reader is no member; a tenant's role is a member of none at all."""
# A role may become each of these by SET ROLE, and has their attributes then. Superusers are members of all roles.
_ROLES_OF = (
    "SELECT o.rolname AS name, o.rolsuper, o.rolbypassrls, o.rolcreaterole, o.rolreplication, o.rolcreatedb, "
    "starts_with(o.rolname, 'pg_') AS is_predefined, "
    "o.oid = (SELECT datdba FROM pg_database WHERE datname = current_database()) AS owns_database "
    "FROM pg_roles r JOIN pg_roles o ON o.oid = r.oid OR (NOT r.rolsuper AND pg_has_role(r.oid, o.oid, 'MEMBER')) "
    "WHERE r.rolname = :role ORDER BY o.oid <> r.oid, o.rolname"
)
_TEMPORARY = (
    "SELECT datname AS name, has_database_privilege(CAST(:role AS name), oid, 'TEMPORARY') AS has, "
    "pg_has_role(datdba, 'USAGE') AS may_revoke FROM pg_database WHERE datname = current_database()"
)
_LIMITS_OF_ROLE = (
    "SELECT current_user AS this, r.rolconnlimit AS connections, m.rolsuper OR (m.rolcreaterole AND "
    "(current_setting('server_version_num')::int < 160000 OR pg_has_role(r.oid, 'MEMBER WITH ADMIN OPTION'))) "
    "AS may_alter, ARRAY(SELECT o.rolname::text FROM pg_roles o WHERE o.oid <> r.oid AND NOT r.rolsuper "
    "AND pg_has_role(r.oid, o.oid, 'MEMBER') AND has_table_privilege(o.oid, 'vms', 'SELECT') ORDER BY 1) AS others "
    "FROM pg_roles r, pg_roles m WHERE r.rolname = :role AND m.rolname = current_user"
)
