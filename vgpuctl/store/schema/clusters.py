# SPDX-License-Identifier: Apache-2.0
"""Tables of tenants' clusters: node pools, and the nodes that are wanted."""

from sqlalchemy import Boolean, Column, Double, ForeignKey, ForeignKeyConstraint, Integer, Table, Text, UniqueConstraint

from vgpuctl.store.metadata import metadata

node_pools = Table(
    "node_pools",
    metadata,
    Column("tenant", Text, ForeignKey("tenants.name"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("spec", Text, nullable=False),
    Column("spec_version", Integer, nullable=False),
    Column("secrets", Text),
    Column("created_at", Double, nullable=False),
    Column("never_joined", Integer, nullable=False),
    Column("never_joined_at", Double),
    Column("least_allocatable", Text),
)

nodes = Table(
    "nodes",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("pool", Text, nullable=False),
    Column("vm_uuid", Text, nullable=False),
    Column("wanted_at", Double, nullable=False),
    Column("jobs", Text),
    Column("running_at", Double),
    Column("joined_at", Double),
    Column("is_ready", Boolean),
    Column("seen_at", Double),
    Column("leaving_at", Double),
    Column("leave_reason", Text),
    Column("is_drained", Boolean, nullable=False),
    Column("wanted_again", Boolean, nullable=False),
    ForeignKeyConstraint(["tenant", "pool"], ["node_pools.tenant", "node_pools.name"]),
    UniqueConstraint("vm_uuid"),
)
