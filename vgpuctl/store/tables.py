# SPDX-License-Identifier: Apache-2.0
"""The tables as this version of vgpuctl uses them; migrations/versions builds exactly these (tests compare).

Commands do not import them: their statements are SQL text. Times are seconds since the epoch, UTC. JSON columns are
text on both databases, so that they come back as written.
"""

from sqlalchemy import Index, MetaData, text

from vgpuctl.store.metadata import metadata
from vgpuctl.store.schema import clusters, hosts, networks, runs, tenants, vms

__all__ = ["complete_metadata", "metadata"]

_SUBJECTS = (clusters, hosts, networks, runs, tenants, vms)
"""The modules that add their tables to the metadata."""
_PARTIAL_UNIQUE = {
    "uq_leases_live_device": ("leases", ("host", "device"), "state <> 'gone'"),
    "uq_leases_live_position": ("leases", ("vm_uuid", "position"), "state <> 'gone'"),
    "uq_usage_open_lease": ("usage", ("lease_id",), "ended_at IS NULL"),
    "uq_licence_seats_held_vm": ("licence_seats", ("vm_uuid",), "released_at IS NULL"),
}


def complete_metadata() -> MetaData:
    """The tables with the partial unique indexes, which only migrations and their tests need to know.

    Naming a PostgreSQL option of an index loads that dialect, also for those who never use it.
    """
    for name, (of_table, columns, rule) in _PARTIAL_UNIQUE.items():
        table = metadata.tables[of_table]
        if name not in {index.name for index in table.indexes}:
            where = text(rule)
            Index(
                name, *(table.c[column] for column in columns), unique=True, sqlite_where=where, postgresql_where=where
            )
    return metadata
