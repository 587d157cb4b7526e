# SPDX-License-Identifier: Apache-2.0
"""The tables as this version of vgpuctl uses them; migrations/versions builds exactly these (tests compare).

Times are seconds since the epoch, UTC. JSON columns are text on both databases, so that they come back as written.
"""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from vgpuctl.store.metadata import BIG as _BIG
from vgpuctl.store.metadata import metadata

SCHEMA_VERSION = "0022"
VERSION_TABLE = "vgpuctl_version"

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

vms = Table(
    "vms",
    metadata,
    Column("uuid", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("name", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("problem", Text),
    Column("request", Text, nullable=False),
    Column("request_version", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("ends_at", Double),
    Column("gang", Text),
    Column("preempted_at", Double),
    Column("preempted_by", Text),
    Column("preempted_for_good", Boolean),
    Column("domain", Text),
    Column("nodes", Text),
    Column("guest_driver", Text),
    UniqueConstraint("tenant", "name"),
    Index(None, "host"),
)

volumes = Table(
    "volumes",
    metadata,
    Column("host", Text, primary_key=True),
    Column("pool", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("vm_uuid", Text, nullable=False),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("vm_name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("capacity_bytes", _BIG),
    Column("key", Text),
    Column("path", Text),
    Column("format", Text),
    Column("backing_path", Text),
    Column("created_at", Double, nullable=False),
    Column("label", Text, nullable=False, server_default=""),
    Column("keep", Boolean),
    UniqueConstraint("vm_uuid", "host", "kind", "label"),
)

hosts = Table(
    "hosts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("generation", _BIG, nullable=False),
    Column("facts", Text),
    Column("facts_shape", Text),
    Column("read_at", Double),
    CheckConstraint("generation >= 0", name="generation"),
)

leases = Table(
    "leases",
    metadata,
    Column("id", Text, primary_key=True),
    Column("vm_uuid", Text, nullable=False),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("vm_name", Text, nullable=False),
    Column("host", Text, ForeignKey("hosts.name"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("device", Text, nullable=False),
    Column("share", Text, nullable=False),
    Column("share_version", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("problem", Text),
    Column("created_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    Index(None, "vm_uuid"),
)

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
    UniqueConstraint("mac_address"),
    UniqueConstraint("network_id", "address"),
    UniqueConstraint("vm_uuid", "position"),
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

events = Table(
    "events",
    metadata,
    Column("id", _BIG, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("tenant", Text),
    Column("host", Text),
    Column("command", Text),
    Column("os_user", Text),
    Column("client_host", Text),
    Column("database_role", Text),
    Column("before", Text),
    Column("after", Text),
    Column("evidence", Text),
    Index(None, "subject"),
    Index(None, "at"),
    sqlite_autoincrement=True,
)

restrictions = Table(
    "restrictions",
    metadata,
    Column("host", Text, primary_key=True),
    Column("device", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("finding", Text),
    Column("gpu_uuid", Text),
    Column("set_by", Text, nullable=False),
    Column("set_at", Double, nullable=False),
)

operations = Table(
    "operations",
    metadata,
    Column("id", _BIG, primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("pid", _BIG, nullable=False),
    Column("hostname", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("process_start", Text, nullable=False),
    Column("begun_at", Double, nullable=False),
    sqlite_autoincrement=True,
)

controllers = Table(
    "controllers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("pid", _BIG, nullable=False),
    Column("hostname", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("process_start", Text, nullable=False),
    Column("beat", _BIG, nullable=False),
    Column("serves", Text, nullable=False),
    Column("begun_at", Double, nullable=False),
)

host_claims = Table(
    "host_claims",
    metadata,
    Column("host", Text, primary_key=True),
    Column("controller", Text, ForeignKey("controllers.id", ondelete="CASCADE"), nullable=False),
)

reclaims = Table(
    "reclaims",
    metadata,
    Column("operation_id", _BIG, ForeignKey("operations.id", ondelete="CASCADE"), primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("vm_name", Text, primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("amount", _BIG, nullable=False),
)

host_records = Table(
    "host_records",
    metadata,
    Column("host", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("content", Text, nullable=False),
    Column("at", Double, nullable=False),
)

pools = Table(
    "pools",
    metadata,
    Column("name", Text, primary_key=True),
    Column("created_at", Double, nullable=False),
)

pool_hosts = Table(
    "pool_hosts",
    metadata,
    Column("host", Text, primary_key=True),
    Column("pool", Text, ForeignKey("pools.name"), nullable=False),
)

pool_grants = Table(
    "pool_grants",
    metadata,
    Column("pool", Text, ForeignKey("pools.name"), primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), primary_key=True),
)

quotas = Table(
    "quotas",
    metadata,
    Column("tenant", Text, ForeignKey("tenants.name"), primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("most", _BIG),
    Column("guaranteed", _BIG),
)

usage = Table(
    "usage",
    metadata,
    Column("id", _BIG, primary_key=True, autoincrement=True),
    Column("lease_id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("vm_uuid", Text, nullable=False),
    Column("vm_name", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("gpu", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("framebuffer_mib", _BIG, nullable=False),
    Column("compute_slices", Integer, nullable=False),
    Column("card_part", Double, nullable=False),
    Column("begun_at", Double, nullable=False),
    Column("ended_at", Double),
    Index(None, "tenant", "begun_at"),
    sqlite_autoincrement=True,
)

queue = Table(
    "queue",
    metadata,
    Column("id", _BIG, primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("name", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("request_version", Integer, nullable=False),
    Column("queued_at", Double, nullable=False),
    Column("reason", Text),
    Column("may_preempt", Boolean),
    Column("secrets", Text),
    UniqueConstraint("tenant", "name"),
    sqlite_autoincrement=True,
)

settings = Table(
    "settings",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
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

images = Table(
    "images",
    metadata,
    Column("name", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("format", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("path", Text),
    Column("pool", Text),
    Column("volume", Text),
    Column("os", Text),
    Column("guest_driver", Text),
    Column("created_at", Double, nullable=False),
)

image_copies = Table(
    "image_copies",
    metadata,
    Column("image", Text, ForeignKey("images.name"), primary_key=True),
    Column("host", Text, primary_key=True),
    Column("real_path", Text, nullable=False),
    Column("size_bytes", _BIG, nullable=False),
    Column("device", Text, nullable=False),
    Column("inode", Text, nullable=False),
    Column("changed_ns", _BIG, nullable=False),
    Column("verified_at", Double, nullable=False),
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
    Column("id", _BIG, primary_key=True, autoincrement=True),
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

proofs = Table(
    "proofs",
    metadata,
    Column("id", _BIG, primary_key=True, autoincrement=True),
    Column("vm_uuid", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("kept", Boolean),
    Column("content", Text, nullable=False),
    Index(None, "vm_uuid"),
    sqlite_autoincrement=True,
)

_PARTIAL_UNIQUE = {
    "uq_leases_live_device": (leases, ("host", "device"), "state <> 'gone'"),
    "uq_leases_live_position": (leases, ("vm_uuid", "position"), "state <> 'gone'"),
    "uq_usage_open_lease": (usage, ("lease_id",), "ended_at IS NULL"),
    "uq_licence_seats_held_vm": (licence_seats, ("vm_uuid",), "released_at IS NULL"),
}


def complete_metadata() -> MetaData:
    """The tables with the partial unique indexes, which only migrations and their tests need to know.

    Naming a PostgreSQL option of an index loads that dialect, also for those who never use it.
    """
    for name, (table, columns, rule) in _PARTIAL_UNIQUE.items():
        if name not in {index.name for index in table.indexes}:
            where = text(rule)
            Index(
                name, *(table.c[column] for column in columns), unique=True, sqlite_where=where, postgresql_where=where
            )
    return metadata
