# SPDX-License-Identifier: Apache-2.0
"""The queue, its settings, and when a VM's declared time is over."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add them."""
    op.add_column("vms", sa.Column("ends_at", sa.Double))
    op.create_table(
        "queue",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("request_version", sa.Integer, nullable=False),
        sa.Column("queued_at", sa.Double, nullable=False),
        sa.Column("reason", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_queue"),
        sa.UniqueConstraint("tenant", "name", name="uq_queue_tenant_name"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_queue_tenant_tenants"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "settings",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_settings"),
    )
