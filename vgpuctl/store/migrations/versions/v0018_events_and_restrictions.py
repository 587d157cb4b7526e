# SPDX-License-Identifier: Apache-2.0
"""Events say who did it, what was before and after, and the evidence; operators restrict hosts and GPUs."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_ADDED = ("tenant", "host", "command", "os_user", "client_host", "database_role", "before", "after", "evidence")


def upgrade() -> None:
    """Add the columns of events, all of them empty for the events there are, and the table `restrictions`."""
    for name in _ADDED:
        op.add_column("events", sa.Column(name, sa.Text()))
    op.create_index("ix_events_at", "events", ["at"])
    op.create_table(
        "restrictions",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("finding", sa.Text()),
        sa.Column("gpu_uuid", sa.Text()),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("host", "device", "kind", name="pk_restrictions"),
    )
