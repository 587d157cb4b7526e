# SPDX-License-Identifier: Apache-2.0
"""Tables of the objects in tenants' networks, and of external networks with the addresses that tenants hold there."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Build them."""
    op.create_table(
        "vpc_objects",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "kind", "name", name="pk_vpc_objects"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_vpc_objects_tenant_tenants"),
    )
    op.create_table(
        "outsides",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_outsides"),
    )
    op.create_table(
        "outside_addresses",
        sa.Column("outside", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("outside", "address", name="pk_outside_addresses"),
        sa.UniqueConstraint("tenant", "holder", name="uq_outside_addresses_tenant_holder"),
        sa.ForeignKeyConstraint(["outside"], ["outsides.name"], name="fk_outside_addresses_outside_outsides"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_outside_addresses_tenant_tenants"),
    )
