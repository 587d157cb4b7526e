# SPDX-License-Identifier: Apache-2.0
"""Tables of tenants: quotas, pools of hosts, the queue, reservations, licences, usage, traffic."""

from sqlalchemy import Boolean, Column, Double, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from vgpuctl.store.metadata import BIG, metadata

tenants = Table(
    "tenants",
    metadata,
    Column("name", Text, primary_key=True),
    Column("created_at", Double, nullable=False),
    Column("reclaim", Text),
    Column("preempt", Text),
    Column("grace_s", Double),
    Column("guest_probe", Boolean),
)

quotas = Table(
    "quotas",
    metadata,
    Column("tenant", Text, ForeignKey("tenants.name"), primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("most", BIG),
    Column("guaranteed", BIG),
)

host_pools = Table(
    "host_pools",
    metadata,
    Column("name", Text, primary_key=True),
    Column("created_at", Double, nullable=False),
)

host_pool_hosts = Table(
    "host_pool_hosts",
    metadata,
    Column("host", Text, primary_key=True),
    Column("pool", Text, ForeignKey("host_pools.name"), nullable=False),
)

host_pool_grants = Table(
    "host_pool_grants",
    metadata,
    Column("pool", Text, ForeignKey("host_pools.name"), primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), primary_key=True),
)

queue = Table(
    "queue",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("name", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("request_version", Integer, nullable=False),
    Column("queued_at", Double, nullable=False),
    Column("reason", Text),
    Column("may_preempt", Boolean),
    Column("secrets", Text),
    Column("refusal", Text),
    UniqueConstraint("tenant", "name"),
    sqlite_autoincrement=True,
)

reservations = Table(
    "reservations",
    metadata,
    Column("tenant", Text, ForeignKey("tenants.name"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("content_version", Integer, nullable=False),
    Column("vm_uuid", Text),
    Column("created_at", Double, nullable=False),
)

licence_pools = Table(
    "licence_pools",
    metadata,
    Column("name", Text, primary_key=True),
    Column("edition", Text, nullable=False),
    Column("seats", Integer, nullable=False),
    Column("lease_s", Double, nullable=False),
    Column("server", Text),
    Column("token", Text),
    Column("created_at", Double, nullable=False),
)

licence_seats = Table(
    "licence_seats",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=True),
    Column("pool", Text, ForeignKey("licence_pools.name"), nullable=False),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("vm_uuid", Text, nullable=False),
    Column("vm_name", Text, nullable=False),
    Column("edition", Text, nullable=False),
    Column("taken_at", Double, nullable=False),
    Column("used_at", Double),
    Column("released_at", Double),
    Index(None, "vm_uuid"),
    sqlite_autoincrement=True,
)

usage = Table(
    "usage",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=True),
    Column("lease_id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("vm_uuid", Text, nullable=False),
    Column("vm_name", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("gpu", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("framebuffer_mib", BIG, nullable=False),
    Column("compute_slices", Integer, nullable=False),
    Column("card_part", Double, nullable=False),
    Column("begun_at", Double, nullable=False),
    Column("ended_at", Double),
    Index(None, "tenant", "begun_at"),
    sqlite_autoincrement=True,
)

traffic = Table(
    "traffic",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("object", Text, primary_key=True),
    Column("day", Double, primary_key=True),
    Column("name", Text, nullable=False),
    Column("received_bytes", BIG, nullable=False),
    Column("sent_bytes", BIG, nullable=False),
    Column("received_packets", BIG, nullable=False),
    Column("sent_packets", BIG, nullable=False),
    Column("first_at", Double, nullable=False),
    Column("last_at", Double, nullable=False),
    Index(None, "day"),
)

role_tenants = Table(
    "role_tenants",
    metadata,
    Column("role", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("since", Double, nullable=False),
)
