# SPDX-License-Identifier: Apache-2.0
"""Tables of hosts: facts, records, restrictions."""

from sqlalchemy import CheckConstraint, Column, Double, Table, Text

from vgpuctl.store.metadata import BIG, metadata

hosts = Table(
    "hosts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("generation", BIG, nullable=False),
    Column("facts", Text),
    Column("facts_shape", Text),
    Column("read_at", Double),
    CheckConstraint("generation >= 0", name="generation"),
)

host_records = Table(
    "host_records",
    metadata,
    Column("host", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("content", Text, nullable=False),
    Column("at", Double, nullable=False),
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
