# SPDX-License-Identifier: Apache-2.0
"""VMs have several disks, seats of licences, and proofs from inside the guest."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what tells several disks of a VM apart, and the tables of licences and proofs, all empty."""
    big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.add_column("tenants", sa.Column("guest_probe", sa.Boolean()))
    op.add_column("images", sa.Column("guest_driver", sa.Text()))
    op.add_column("vms", sa.Column("guest_driver", sa.Text()))
    with op.batch_alter_table("volumes") as table:
        table.add_column(sa.Column("label", sa.Text(), nullable=False, server_default=""))
        table.add_column(sa.Column("keep", sa.Boolean()))
        table.drop_constraint("uq_volumes_vm_uuid_host_kind", type_="unique")
        table.create_unique_constraint("uq_volumes_vm_uuid_host_kind_label", ["vm_uuid", "host", "kind", "label"])
    op.create_table(
        "licence_pools",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("edition", sa.Text(), nullable=False),
        sa.Column("seats", sa.Integer(), nullable=False),
        sa.Column("lease_s", sa.Double(), nullable=False),
        sa.Column("server", sa.Text()),
        sa.Column("token", sa.Text()),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_licence_pools"),
    )
    op.create_table(
        "licence_seats",
        sa.Column("id", big, autoincrement=True, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("vm_uuid", sa.Text(), nullable=False),
        sa.Column("vm_name", sa.Text(), nullable=False),
        sa.Column("edition", sa.Text(), nullable=False),
        sa.Column("taken_at", sa.Double(), nullable=False),
        sa.Column("used_at", sa.Double()),
        sa.Column("released_at", sa.Double()),
        sa.ForeignKeyConstraint(["pool"], ["licence_pools.name"], name="fk_licence_seats_pool_licence_pools"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_licence_seats_tenant_tenants"),
        sa.PrimaryKeyConstraint("id", name="pk_licence_seats"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_licence_seats_vm_uuid", "licence_seats", ["vm_uuid"])
    held = sa.text("released_at IS NULL")
    op.create_index(
        "uq_licence_seats_held_vm",
        "licence_seats",
        ["vm_uuid"],
        unique=True,
        sqlite_where=held,
        postgresql_where=held,
    )
    op.create_table(
        "proofs",
        sa.Column("id", big, autoincrement=True, nullable=False),
        sa.Column("vm_uuid", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kept", sa.Boolean()),
        sa.Column("content", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_proofs"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_proofs_vm_uuid", "proofs", ["vm_uuid"])
