# SPDX-License-Identifier: Apache-2.0
"""A VM that moves has its volumes on two hosts for a while."""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Allow one volume of a kind on each host, instead of one altogether."""
    with op.batch_alter_table("volumes") as table:
        table.drop_constraint("uq_volumes_vm_uuid_kind", type_="unique")
        table.create_unique_constraint("uq_volumes_vm_uuid_host_kind", ["vm_uuid", "host", "kind"])
