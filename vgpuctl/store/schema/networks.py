# SPDX-License-Identifier: Apache-2.0
"""Tables of tenants' networks and of external ones."""

from sqlalchemy import Column, Double, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from vgpuctl.store.metadata import metadata

networks = Table(
    "networks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("name", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("host", Text),
    Column("state", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("label", Text),
    UniqueConstraint("tenant", "name"),
)

addresses = Table(
    "addresses",
    metadata,
    Column("network_id", Text, ForeignKey("networks.id"), primary_key=True),
    Column("address", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("holder", Text, nullable=False),
    Index(None, "holder"),
)

ports = Table(
    "ports",
    metadata,
    Column("id", Text, primary_key=True),
    Column("network_id", Text, ForeignKey("networks.id"), nullable=False),
    Column("vm_uuid", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("mac_address", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("address6", Text),
    UniqueConstraint("mac_address"),
    UniqueConstraint("network_id", "address"),
    UniqueConstraint("vm_uuid", "position"),
    Index(None, "network_id", "address6", unique=True),
)

vpc_objects = Table(
    "vpc_objects",
    metadata,
    Column("tenant", Text, ForeignKey("tenants.name"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("spec", Text, nullable=False),
)

external_networks = Table(
    "external_networks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("spec", Text, nullable=False),
)

external_addresses = Table(
    "external_addresses",
    metadata,
    Column("external_network", Text, ForeignKey("external_networks.name"), primary_key=True),
    Column("address", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("holder", Text, nullable=False),
    UniqueConstraint("tenant", "holder"),
)
