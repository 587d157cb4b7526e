# SPDX-License-Identifier: Apache-2.0
"""Deleted VMs whose disks are kept for a time."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, empty."""
    op.create_table(
        "kept_vms",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("request_version", sa.Integer(), nullable=False),
        sa.Column("domain", sa.Text()),
        sa.Column("guest_driver", sa.Text()),
        sa.Column("kept_at", sa.Double(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_kept_vms"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_kept_vms_tenant_tenants"),
        sa.UniqueConstraint("tenant", "name", name="uq_kept_vms_tenant_name"),
    )
