# SPDX-License-Identifier: Apache-2.0
"""The part of its host's NUMA nodes that a VM has."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; it is empty for VMs that are there."""
    op.add_column("vms", sa.Column("nodes", sa.Text))
