# SPDX-License-Identifier: Apache-2.0
"""Tables of what runs and ran: events, operations, controllers and their claims, commits, settings of the store."""

from sqlalchemy import Column, Double, ForeignKey, Index, Table, Text

from vgpuctl.store.metadata import BIG, metadata

events = Table(
    "events",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=True),
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

operations = Table(
    "operations",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("pid", BIG, nullable=False),
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
    Column("pid", BIG, nullable=False),
    Column("hostname", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("process_start", Text, nullable=False),
    Column("beat", BIG, nullable=False),
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
    Column("operation_id", BIG, ForeignKey("operations.id", ondelete="CASCADE"), primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("vm_name", Text, primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("amount", BIG, nullable=False),
)

settings = Table(
    "settings",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

commits = Table(
    "commits",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=False),
    Column("token", Text, nullable=False),
    Column("inode", Text),
)
