# SPDX-License-Identifier: Apache-2.0
"""The first tables: tenants, vms, hosts, leases, events, operations."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_LIVE = sa.text("state <> 'gone'")
_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Build them."""
    op.create_table(
        "tenants",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_tenants"),
    )
    op.create_table(
        "vms",
        sa.Column("uuid", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("problem", sa.Text),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("request_version", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_vms"),
        sa.UniqueConstraint("tenant", "name", name="uq_vms_tenant_name"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_vms_tenant_tenants"),
    )
    op.create_index("ix_vms_host", "vms", ["host"])
    op.create_table(
        "hosts",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("facts", sa.Text),
        sa.Column("facts_shape", sa.Text),
        sa.Column("read_at", sa.Double),
        sa.PrimaryKeyConstraint("name", name="pk_hosts"),
        sa.CheckConstraint("generation >= 0", name="ck_hosts_generation"),
    )
    op.create_table(
        "leases",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("vm_uuid", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("vm_name", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("slice", sa.Text, nullable=False),
        sa.Column("slice_version", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("problem", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_leases"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_leases_tenant_tenants"),
        sa.ForeignKeyConstraint(["host"], ["hosts.name"], name="fk_leases_host_hosts"),
    )
    op.create_index("ix_leases_vm_uuid", "leases", ["vm_uuid"])
    for name, columns in (
        ("uq_leases_live_device", ["host", "device"]),
        ("uq_leases_live_position", ["vm_uuid", "position"]),
    ):
        op.create_index(name, "leases", columns, unique=True, sqlite_where=_LIVE, postgresql_where=_LIVE)
    op.create_table(
        "events",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_subject", "events", ["subject"])
    op.create_table(
        "operations",
        sa.Column("id", _BIG, autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("pid", _BIG, nullable=False),
        sa.Column("hostname", sa.Text, nullable=False),
        sa.Column("machine", sa.Text, nullable=False),
        sa.Column("process_start", sa.Text, nullable=False),
        sa.Column("begun_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_operations"),
        sqlite_autoincrement=True,
    )
