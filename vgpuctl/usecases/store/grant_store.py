# SPDX-License-Identifier: Apache-2.0
"""grant-store: the rights of one role of the database on the store."""

from dataclasses import dataclass

from vgpuctl.model.database_role import Rights
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class GrantedRole:
    """The answer of grant-store. changed: False when the role had these rights. statements: the SQL."""

    role: str
    rights: str
    changed: bool
    statements: tuple[str, ...]


class _NothingGranted(Exception):
    """Rolls back the transaction of a dry run."""


def grant_store(services: Services, role: str, rights: Rights, *, dry_run: bool = False) -> GrantedRole:
    """Give a role these rights and no others. Raises what DatabaseRoleRows.grant_role raises, and NotFound (tenant)."""
    granted = GrantedRole(role, str(rights), changed=False, statements=())
    try:
        with services.store.transaction() as session:
            if rights.tenant is not None:
                session.tenant(rights.tenant)
            statements, changed = session.grant_role(role, rights)
            granted = GrantedRole(role, str(rights), changed, tuple(statements))
            if dry_run:
                raise _NothingGranted
    except _NothingGranted:
        pass
    return granted
