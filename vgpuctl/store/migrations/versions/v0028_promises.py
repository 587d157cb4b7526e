# SPDX-License-Identifier: Apache-2.0
"""What was found of a VM's promises is one of its host's records, row by row; each check is an event as before."""

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the table of proofs, of which each is in an event too."""
    op.drop_table("proofs")
