# SPDX-License-Identifier: Apache-2.0
"""The ledger of bytes and packets of tenants. It begins empty: what VMs carried before was not counted."""

import sqlalchemy as sa
from alembic import op

from vgpuctl.store.metadata import BIG

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the store."""
    op.create_table(
        "traffic",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("object", sa.Text, nullable=False),
        sa.Column("day", sa.Double, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("received_bytes", BIG, nullable=False),
        sa.Column("sent_bytes", BIG, nullable=False),
        sa.Column("received_packets", BIG, nullable=False),
        sa.Column("sent_packets", BIG, nullable=False),
        sa.Column("first_at", sa.Double, nullable=False),
        sa.Column("last_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "kind", "object", "day", name="pk_traffic"),
    )
    op.create_index("ix_traffic_day", "traffic", ["day"])
