# SPDX-License-Identifier: Apache-2.0
"""External networks, floating IPs and direct connects have these names in tables, kinds and holders."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_KINDS = {"floating-address": "floating-ip", "direct-line": "direct-connect"}


def upgrade() -> None:
    """Copy the tables into those with the new names, and rename kinds, holders and the gateway's field."""
    op.create_table(
        "external_networks",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_external_networks"),
    )
    op.create_table(
        "external_addresses",
        sa.Column("external_network", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("external_network", "address", name="pk_external_addresses"),
        sa.UniqueConstraint("tenant", "holder", name="uq_external_addresses_tenant_holder"),
        sa.ForeignKeyConstraint(
            ["external_network"],
            ["external_networks.name"],
            name="fk_external_addresses_external_network_external_networks",
        ),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_external_addresses_tenant_tenants"),
    )
    op.execute("INSERT INTO external_networks (name, spec) SELECT name, spec FROM outsides")
    op.execute(
        "INSERT INTO external_addresses (external_network, address, tenant, holder) "
        "SELECT outside, address, tenant, replace(holder, 'floating-address/', 'floating-ip/') FROM outside_addresses"
    )
    op.drop_table("outside_addresses")
    op.drop_table("outsides")
    objects = sa.table("vpc_objects", sa.column("tenant"), sa.column("kind"), sa.column("name"), sa.column("spec"))
    for old, new in _KINDS.items():
        op.execute(objects.update().where(objects.c.kind == old).values(kind=new))
    connection = op.get_bind()
    gateways = sa.select(objects.c.tenant, objects.c.spec).where(objects.c.kind == "gateway")
    for tenant, text in connection.execute(gateways).all():
        spec = json.dumps({"external_network": json.loads(text)["outside"]}, separators=(",", ":"))
        connection.execute(
            objects.update().where(objects.c.tenant == tenant, objects.c.kind == "gateway").values(spec=spec)
        )
