# SPDX-License-Identifier: Apache-2.0
"""The least that the nodes of a pool had for pods, as their cluster said."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; it is filled in the controller's next round over the nodes."""
    op.add_column("node_pools", sa.Column("least_allocatable", sa.Text()))
