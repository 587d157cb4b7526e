# SPDX-License-Identifier: Apache-2.0
"""The last commits of the store by number and token, by which a process knows that what it has seen still counts."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, empty, in place of the setting with the last commits on PostgreSQL."""
    op.create_table(
        "commits",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, autoincrement=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("inode", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_commits"),
    )
    op.execute("DELETE FROM settings WHERE name = 'recent-commits'")
