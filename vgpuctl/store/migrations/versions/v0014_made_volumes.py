# SPDX-License-Identifier: Apache-2.0
"""Format and backing file of a volume, as libvirt showed them when it had made it."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; they are empty for volumes that are there."""
    op.add_column("volumes", sa.Column("format", sa.Text))
    op.add_column("volumes", sa.Column("backing_path", sa.Text))
