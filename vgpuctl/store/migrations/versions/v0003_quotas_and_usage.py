# SPDX-License-Identifier: Apache-2.0
"""Pools with grants, quotas, and the usage ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_OPEN = sa.text("ended_at IS NULL")
_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Build them."""
    op.create_table(
        "pools",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_pools"),
    )
    op.create_table(
        "pool_hosts",
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_pool_hosts"),
        sa.ForeignKeyConstraint(["pool"], ["pools.name"], name="fk_pool_hosts_pool_pools"),
    )
    op.create_table(
        "pool_grants",
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("pool", "tenant", name="pk_pool_grants"),
        sa.ForeignKeyConstraint(["pool"], ["pools.name"], name="fk_pool_grants_pool_pools"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_pool_grants_tenant_tenants"),
    )
    op.create_table(
        "quotas",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("most", _BIG),
        sa.Column("guaranteed", _BIG),
        sa.PrimaryKeyConstraint("tenant", "resource", name="pk_quotas"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_quotas_tenant_tenants"),
    )
    op.create_table(
        "usage",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("lease_id", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("vm_uuid", sa.Text, nullable=False),
        sa.Column("vm_name", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("gpu", sa.Text, nullable=False),
        sa.Column("profile", sa.Text, nullable=False),
        sa.Column("framebuffer_mib", _BIG, nullable=False),
        sa.Column("compute_slices", sa.Integer, nullable=False),
        sa.Column("card_part", sa.Double, nullable=False),
        sa.Column("begun_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_usage"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_usage_tenant_begun_at", "usage", ["tenant", "begun_at"])
    op.create_index(
        "uq_usage_open_lease", "usage", ["lease_id"], unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN
    )
