# SPDX-License-Identifier: Apache-2.0
"""Preemption policies of tenants, gangs and notices of VMs, consent of queue entries; starts of VMs that are gone."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_ORPHANS = (
    "DELETE FROM queue WHERE kind = 'start' AND NOT EXISTS "
    "(SELECT 1 FROM vms WHERE vms.tenant = queue.tenant AND vms.name = queue.name)"
)


def upgrade() -> None:
    """Add the columns; an empty one means the default. Delete entries that wait for the start of a deleted VM."""
    op.add_column("tenants", sa.Column("reclaim", sa.Text))
    op.add_column("tenants", sa.Column("preempt", sa.Text))
    op.add_column("tenants", sa.Column("grace_s", sa.Double))
    op.add_column("vms", sa.Column("gang", sa.Text))
    op.add_column("vms", sa.Column("preempted_at", sa.Double))
    op.add_column("vms", sa.Column("preempted_by", sa.Text))
    op.add_column("queue", sa.Column("may_preempt", sa.Boolean))
    op.execute(_ORPHANS)
