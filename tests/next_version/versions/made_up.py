# SPDX-License-Identifier: Apache-2.0
"""One of each change that migrations make: table, column, index, rows, and a table that SQLite has to copy."""

import sqlalchemy as sa
from alembic import op

from tests.next_version import SCHEMA
from vgpuctl.store.schema import SCHEMA_VERSION

revision = SCHEMA
down_revision = SCHEMA_VERSION
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the store."""
    op.create_table(
        "made_up",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("vms", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("tenant", name="pk_made_up"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_made_up_tenant_tenants"),
    )
    op.create_index("ix_made_up_vms", "made_up", ["vms"])
    op.execute("INSERT INTO made_up (tenant, vms) SELECT tenant, count(*) FROM vms GROUP BY tenant")
    op.add_column("tenants", sa.Column("made_up", sa.Text))
    op.execute("UPDATE tenants SET made_up = upper(name)")
    with op.batch_alter_table("usage", recreate="always") as usage:
        usage.alter_column("gpu", existing_type=sa.Text, nullable=False)
