# SPDX-License-Identifier: Apache-2.0
"""Node pools of tenants' clusters and their nodes; the queue keeps the kind of its last refusal."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables of node pools and nodes, both empty, and the refusals of the queue."""
    op.add_column("queue", sa.Column("refusal", sa.Text()))
    op.create_table(
        "node_pools",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("spec_version", sa.Integer(), nullable=False),
        sa.Column("secrets", sa.Text()),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("never_joined", sa.Integer(), nullable=False),
        sa.Column("never_joined_at", sa.Double()),
        sa.PrimaryKeyConstraint("tenant", "name", name="pk_node_pools"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_node_pools_tenant_tenants"),
    )
    op.create_table(
        "nodes",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("vm_uuid", sa.Text(), nullable=False),
        sa.Column("wanted_at", sa.Double(), nullable=False),
        sa.Column("jobs", sa.Text()),
        sa.Column("running_at", sa.Double()),
        sa.Column("joined_at", sa.Double()),
        sa.Column("is_ready", sa.Boolean()),
        sa.Column("seen_at", sa.Double()),
        sa.Column("leaving_at", sa.Double()),
        sa.Column("leave_reason", sa.Text()),
        sa.Column("is_drained", sa.Boolean(), nullable=False),
        sa.Column("wanted_again", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", name="pk_nodes"),
        sa.ForeignKeyConstraint(
            ["tenant", "pool"], ["node_pools.tenant", "node_pools.name"], name="fk_nodes_tenant_node_pools"
        ),
        sa.UniqueConstraint("vm_uuid", name="uq_nodes_vm_uuid"),
    )
