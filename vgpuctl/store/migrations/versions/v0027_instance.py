# SPDX-License-Identifier: Apache-2.0
"""The name of this very store, by which processes that live on know it, and the tenants of the database's roles."""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Give the store its name, which one that is just being restored has, and add the table of roles, empty."""
    given = (
        "INSERT INTO settings (name, value) SELECT 'instance', :value "
        "WHERE NOT EXISTS (SELECT 1 FROM settings WHERE name = 'instance')"
    )
    op.execute(sa.text(given).bindparams(value=str(uuid.uuid4())))
    op.create_table(
        "role_tenants",
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("role", name="pk_role_tenants"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_role_tenants_tenant_tenants"),
    )
