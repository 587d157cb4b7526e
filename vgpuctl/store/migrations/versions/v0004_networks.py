# SPDX-License-Identifier: Apache-2.0
"""Tenants' networks: networks, addresses, ports."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Build them."""
    op.create_table(
        "networks",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("host", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_networks"),
        sa.UniqueConstraint("tenant", "name", name="uq_networks_tenant_name"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_networks_tenant_tenants"),
    )
    op.create_table(
        "addresses",
        sa.Column("network_id", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("network_id", "address", name="pk_addresses"),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name="fk_addresses_network_id_networks"),
    )
    op.create_index("ix_addresses_holder", "addresses", ["holder"])
    op.create_table(
        "ports",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("network_id", sa.Text, nullable=False),
        sa.Column("vm_uuid", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("mac_address", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ports"),
        sa.UniqueConstraint("mac_address", name="uq_ports_mac_address"),
        sa.UniqueConstraint("network_id", "address", name="uq_ports_network_id_address"),
        sa.UniqueConstraint("vm_uuid", "position", name="uq_ports_vm_uuid_position"),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name="fk_ports_network_id_networks"),
    )
