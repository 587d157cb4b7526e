# SPDX-License-Identifier: Apache-2.0
"""The tables as this version of vgpuctl uses them; migrations/versions builds exactly these (tests compare).

Times are seconds since the epoch, UTC. JSON columns are text on both databases, so that they come back as written.
"""

from sqlalchemy import Index, MetaData, text

from vgpuctl.store.metadata import metadata
from vgpuctl.store.schema.clusters import node_pools, nodes
from vgpuctl.store.schema.hosts import host_records, hosts, restrictions
from vgpuctl.store.schema.networks import addresses, external_addresses, external_networks, networks, ports, vpc_objects
from vgpuctl.store.schema.runs import controllers, events, host_claims, operations, reclaims, settings
from vgpuctl.store.schema.tenants import (
    licence_pools,
    licence_seats,
    pool_grants,
    pool_hosts,
    pools,
    queue,
    quotas,
    reservations,
    tenants,
    usage,
)
from vgpuctl.store.schema.vms import image_copies, images, kept_vms, leases, proofs, vms, volumes

SCHEMA_VERSION = "0026"
VERSION_TABLE = "vgpuctl_version"

__all__ = [
    "SCHEMA_VERSION",
    "VERSION_TABLE",
    "addresses",
    "complete_metadata",
    "controllers",
    "events",
    "external_addresses",
    "external_networks",
    "host_claims",
    "host_records",
    "hosts",
    "image_copies",
    "images",
    "kept_vms",
    "leases",
    "licence_pools",
    "licence_seats",
    "networks",
    "node_pools",
    "nodes",
    "operations",
    "pool_grants",
    "pool_hosts",
    "pools",
    "ports",
    "proofs",
    "queue",
    "quotas",
    "reclaims",
    "reservations",
    "restrictions",
    "settings",
    "tenants",
    "usage",
    "vms",
    "volumes",
    "vpc_objects",
]

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
