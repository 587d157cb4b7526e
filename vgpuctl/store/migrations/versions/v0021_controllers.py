# SPDX-License-Identifier: Apache-2.0
"""Controllers divide the hosts among them by claims."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables `controllers` and `host_claims`, both empty."""
    big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "controllers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pid", big, nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("process_start", sa.Text(), nullable=False),
        sa.Column("beat", big, nullable=False),
        sa.Column("serves", sa.Text(), nullable=False),
        sa.Column("begun_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_controllers"),
    )
    op.create_table(
        "host_claims",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("controller", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["controller"], ["controllers.id"], name="fk_host_claims_controller_controllers", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("host", name="pk_host_claims"),
    )
