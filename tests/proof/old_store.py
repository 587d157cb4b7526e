# SPDX-License-Identifier: Apache-2.0
"""Stores as earlier versions of vgpuctl left them, built by the packaged migrations."""

import uuid
from collections.abc import Sequence

from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from vgpuctl.store import upgrade

TENANTS = ("acme", "a.b")


def old_revisions() -> Sequence[str]:
    """Every schema version before the newest, oldest first."""
    return sorted(one.revision for one in ScriptDirectory.from_config(upgrade.config()).walk_revisions())[:-1]


def build_old_store(url: str, revision: str) -> list[str]:
    """Make a store of this schema version with two tenants and a stopped VM of each.

    Returns `TENANT/VM` of the VMs. The VM's request has the shape of the first version, which all later ones read.
    """
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        command.upgrade(upgrade.config(connection), revision)
        for tenant in TENANTS:
            connection.execute(text("INSERT INTO tenants (name, created_at) VALUES (:name, 1.0)"), {"name": tenant})
            connection.execute(
                text(
                    "INSERT INTO vms (uuid, tenant, name, host, state, request, request_version, created_at) "
                    "VALUES (:uuid, :tenant, 'old-1', 'sim-001', 'stopped', :request, 1, 1.0)"
                ),
                {
                    "uuid": str(uuid.uuid4()),
                    "tenant": tenant,
                    "request": f'{{"name": "old-1", "tenant": "{tenant}", "disk": {{"size_mib": 64}}}}',
                },
            )
    engine.dispose()
    return [f"{tenant}/old-1" for tenant in sorted(TENANTS)]
