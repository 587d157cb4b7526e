# SPDX-License-Identifier: Apache-2.0
"""Reservations: slices that are promised for a time."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "reservations",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("content_version", sa.Integer, nullable=False),
        sa.Column("vm_uuid", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", name="pk_reservations"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_reservations_tenant_tenants"),
    )
