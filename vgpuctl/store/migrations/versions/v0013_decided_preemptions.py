# SPDX-License-Identifier: Apache-2.0
"""Preemptions that are decided, and quota that a run reclaims."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and the table; they are empty for what is there."""
    op.add_column("vms", sa.Column("preempted_for_good", sa.Boolean))
    op.create_table(
        "reclaims",
        sa.Column("operation_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("vm_name", sa.Text, nullable=False),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("amount", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", "vm_name", "resource", name="pk_reclaims"),
        sa.ForeignKeyConstraint(
            ["operation_id"], ["operations.id"], name="fk_reclaims_operation_id_operations", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_reclaims_tenant_tenants"),
    )
