# SPDX-License-Identifier: Apache-2.0
"""The tables as this version of vgpuctl uses them; migrations/versions builds exactly these (tests compare).

Times are seconds since the epoch, UTC. JSON columns are text on both databases, so that they come back as written.
"""

from sqlalchemy import (
    BigInteger,
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

SCHEMA_VERSION = "0002"
VERSION_TABLE = "vgpuctl_version"

_BIG = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

tenants = Table(
    "tenants",
    metadata,
    Column("name", Text, primary_key=True),
    Column("created_at", Double, nullable=False),
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
    UniqueConstraint("tenant", "name"),
    Index(None, "host"),
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
    Column("slice", Text, nullable=False),
    Column("slice_version", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("problem", Text),
    Column("created_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    Index(None, "vm_uuid"),
)

events = Table(
    "events",
    metadata,
    Column("id", _BIG, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Index(None, "subject"),
    sqlite_autoincrement=True,
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

host_records = Table(
    "host_records",
    metadata,
    Column("host", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("content", Text, nullable=False),
    Column("at", Double, nullable=False),
)

_LIVE_LEASES = {"uq_leases_live_device": ("host", "device"), "uq_leases_live_position": ("vm_uuid", "position")}


def complete_metadata() -> MetaData:
    """The tables with the partial unique indexes of live leases, which only migrations and their tests need to know.

    Naming a PostgreSQL option of an index loads that dialect, also for those who never use it.
    """
    present = {index.name for index in leases.indexes}
    for name, columns in _LIVE_LEASES.items():
        if name not in present:
            live = text("state <> 'gone'")
            Index(
                name, *(leases.c[column] for column in columns), unique=True, sqlite_where=live, postgresql_where=live
            )
    return metadata
