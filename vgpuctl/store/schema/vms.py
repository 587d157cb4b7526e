# SPDX-License-Identifier: Apache-2.0
"""Tables of VMs: leases, volumes, images."""

from sqlalchemy import Boolean, Column, Double, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from vgpuctl.store.metadata import BIG, metadata

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
    Column("numa", Text),
    Column("guest_driver", Text),
    UniqueConstraint("tenant", "name"),
    Index(None, "host"),
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
    Column("capacity_bytes", BIG),
    Column("key", Text),
    Column("path", Text),
    Column("format", Text),
    Column("backing_path", Text),
    Column("created_at", Double, nullable=False),
    Column("label", Text, nullable=False, server_default=""),
    Column("keep", Boolean),
    UniqueConstraint("vm_uuid", "host", "kind", "label"),
)

kept_vms = Table(
    "kept_vms",
    metadata,
    Column("uuid", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("name", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("request_version", Integer, nullable=False),
    Column("domain", Text),
    Column("guest_driver", Text),
    Column("kept_at", Double, nullable=False),
    Column("until", Double, nullable=False),
    UniqueConstraint("tenant", "name"),
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
    Column("size_bytes", BIG, nullable=False),
    Column("device", Text, nullable=False),
    Column("inode", Text, nullable=False),
    Column("changed_ns", BIG, nullable=False),
    Column("verified_at", Double, nullable=False),
)
