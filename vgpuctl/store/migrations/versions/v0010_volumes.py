# SPDX-License-Identifier: Apache-2.0
"""Volumes are recorded, and the names that VMs and networks have on their hosts.

Objects of older stores keep the names that they have. Their volumes are recorded as made where the VM was complete;
where its creation had not ended, nobody knows who made a volume of that name, so none is recorded.
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_COMPLETE = ("running", "stopped", "deleting")


def upgrade() -> None:
    """Add the table and the columns, and fill them."""
    op.create_table(
        "volumes",
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("vm_uuid", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("vm_name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("capacity_bytes", sa.BigInteger().with_variant(sa.Integer(), "sqlite")),
        sa.Column("key", sa.Text),
        sa.Column("path", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("host", "pool", "name", name="pk_volumes"),
        sa.UniqueConstraint("vm_uuid", "kind", name="uq_volumes_vm_uuid_kind"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_volumes_tenant_tenants"),
    )
    op.add_column("vms", sa.Column("domain", sa.Text))
    op.add_column("networks", sa.Column("label", sa.Text))
    connection = op.get_bind()
    connection.execute(sa.text("UPDATE networks SET label = tenant || '.' || name"))
    _fill_vms(connection)


def _fill_vms(connection: sa.Connection) -> None:
    """Give each VM its domain's name, and its volumes to the VM that has had them longest."""
    rows = connection.execute(
        sa.text("SELECT uuid, tenant, name, host, state, request, created_at FROM vms ORDER BY created_at, uuid")
    ).all()
    taken: set[tuple[str, str, str]] = set()
    for row in rows:
        request = json.loads(row.request)
        domain = request.get("domain") or f"{row.tenant}.{row.name}"
        connection.execute(
            sa.text("UPDATE vms SET domain = :domain WHERE uuid = :uuid"), {"domain": domain, "uuid": row.uuid}
        )
        if row.state not in _COMPLETE or request.get("domain"):
            continue
        for kind, pool, name in _volumes(request, domain):
            if (row.host, pool, name) not in taken:
                taken.add((row.host, pool, name))
                _add(connection, row, kind, pool, name)


def _volumes(request: dict[str, Any], domain: str) -> list[tuple[str, str, str]]:
    """Give kind, pool and name of the volumes that the VM was made with."""
    found = []
    if request.get("disk"):
        found.append(("disk", request["disk"].get("pool", "default"), f"{domain}.qcow2"))
    seed = request.get("cloud_init") or {}
    fields = ("ssh_authorized_keys", "user_data", "network_config", "hostname", "licence_token_file")
    if any(seed.get(field) for field in fields):
        found.append(("seed", "default", f"{domain}-seed.iso"))
    return found


def _add(connection: sa.Connection, row: sa.Row[Any], kind: str, pool: str, name: str) -> None:
    connection.execute(
        sa.text(
            "INSERT INTO volumes (host, pool, name, vm_uuid, tenant, vm_name, kind, state, created_at)"
            " VALUES (:host, :pool, :name, :uuid, :tenant, :vm, :kind, 'made', :at)"
        ),
        {
            "host": row.host,
            "pool": pool,
            "name": name,
            "uuid": row.uuid,
            "tenant": row.tenant,
            "vm": row.name,
            "kind": kind,
            "at": row.created_at,
        },
    )
