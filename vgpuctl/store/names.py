# SPDX-License-Identifier: Apache-2.0
"""Names of what the store has, for completion in a shell. The driver alone reads them.

Nothing is made, migrated or locked. A store that cannot be read has no names.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from enum import StrEnum
from typing import Any

import msgspec

from vgpuctl.typed_json import decode

_BUSY_S = 0.1
_MOST = 1000


class CompletedKind(StrEnum):
    """The kind of object that a name belongs to. Kinds with a query of tenant and name can be of one tenant."""

    TENANT = "tenant"
    VM = "VM"
    QUEUED = "queued VM"
    DELETED = "deleted VM"
    HOST = "host"
    GPU = "GPU"
    PROFILE = "profile"
    NETWORK = "network"
    EXTERNAL_NETWORK = "external network"
    SECURITY_GROUP = "security group"
    ADDRESS_GROUP = "address group"
    LOAD_BALANCER = "load balancer"
    VPN_CONNECTION = "VPN connection"
    IMAGE = "image"
    DISK = "disk"
    POOL = "host pool"
    NODE_POOL = "node pool"
    RESERVATION = "reservation"
    LICENCE_POOL = "licence pool"
    LABEL = "label"


_OF_TENANTS = {
    CompletedKind.VM: "SELECT tenant, name FROM vms UNION SELECT tenant, name FROM queue",
    CompletedKind.DELETED: "SELECT tenant, name FROM kept_vms",
    CompletedKind.QUEUED: "SELECT tenant, name FROM queue",
    CompletedKind.NETWORK: "SELECT tenant, name FROM networks",
    CompletedKind.SECURITY_GROUP: "SELECT tenant, name FROM vpc_objects WHERE kind = 'security-group'",
    CompletedKind.ADDRESS_GROUP: "SELECT tenant, name FROM vpc_objects WHERE kind = 'address-group'",
    CompletedKind.LOAD_BALANCER: "SELECT tenant, name FROM vpc_objects WHERE kind = 'load-balancer'",
    CompletedKind.VPN_CONNECTION: "SELECT tenant, name FROM vpc_objects WHERE kind = 'vpn-connection'",
    CompletedKind.DISK: "SELECT tenant, label FROM volumes WHERE label <> ''",
    CompletedKind.NODE_POOL: "SELECT tenant, name FROM node_pools",
    CompletedKind.RESERVATION: "SELECT tenant, name FROM reservations",
}
_PLAIN = {
    CompletedKind.TENANT: "SELECT name FROM tenants",
    CompletedKind.HOST: "SELECT name FROM hosts",
    CompletedKind.EXTERNAL_NETWORK: "SELECT name FROM external_networks WHERE name NOT LIKE '%/%'",
    CompletedKind.IMAGE: "SELECT name FROM images",
    CompletedKind.POOL: "SELECT name FROM host_pools",
    CompletedKind.LICENCE_POOL: "SELECT name FROM licence_pools",
}
_FACTS = "SELECT name, facts FROM hosts WHERE facts IS NOT NULL"


class _Type(msgspec.Struct):
    name: str


class _Gpu(msgspec.Struct):
    address: str
    types: list[_Type] = []


_LABELS = "SELECT tenant, request FROM vms UNION SELECT tenant, request FROM queue"


class _Request(msgspec.Struct):
    labels: list[tuple[str, str]] = []


class _Facts(msgspec.Struct):
    gpus: list[_Gpu] = []


def names(url: str, kind: CompletedKind, *, tenant: str | None = None, host: str | None = None) -> list[str]:
    """The names of one kind, at most 1000, sorted. url: of the store, without `@FILE`.

    tenant: only its objects, by their plain names; else `TENANT/NAME`. A label is `KEY=VALUE`. host: only GPUs of this
    host. Empty where the store cannot be read, or is of another version.
    """
    try:
        return read_names(url, kind, tenant=tenant, host=host)
    except Exception:  # noqa: BLE001 - of two drivers; a shell that completes has no place for an error
        return []


def read_names(url: str, kind: CompletedKind, *, tenant: str | None = None, host: str | None = None) -> list[str]:
    """The same, with the driver's error where the store cannot be read."""
    if kind in (CompletedKind.GPU, CompletedKind.PROFILE):
        return sorted(_of_facts(_rows(url, _FACTS), kind, host))[:_MOST]
    if kind is CompletedKind.LABEL:
        return sorted(_labels(_rows(url, _LABELS), tenant))[:_MOST]
    query = _OF_TENANTS.get(kind) or _PLAIN[kind]
    if kind in _PLAIN:
        return sorted(str(name) for (name,) in _rows(url, f"{query} LIMIT {_MOST}"))
    if tenant is not None:  # the first names of all tenants may be of others
        return sorted(str(name) for whose, name in _rows(url, query) if whose == tenant)[:_MOST]
    return sorted(f"{whose}/{name}" for whose, name in _rows(url, f"{query} LIMIT {_MOST}"))


def _labels(rows: Sequence[Sequence[Any]], tenant: str | None) -> set[str]:
    """`KEY=VALUE` of the VMs, and of those in the queue."""
    found: set[str] = set()
    for whose, text in rows:
        if tenant in (None, whose):
            requests = decode(text, list[_Request] | _Request)
            for one in requests if isinstance(requests, list) else [requests]:
                found.update(map("=".join, one.labels))
    return found


def _of_facts(rows: Sequence[Sequence[Any]], kind: CompletedKind, host: str | None) -> Iterator[str]:
    found = set()
    for name, text in rows:
        if host not in (None, name):
            continue
        for gpu in decode(text, _Facts).gpus:
            if kind is CompletedKind.GPU:
                found.add(gpu.address)
            else:
                found.update(one.name.rpartition(" ")[2] for one in gpu.types)
    yield from found


def _rows(url: str, query: str) -> Sequence[Sequence[Any]]:
    from vgpuctl.store.address import SqliteAddress, parse_url

    address = parse_url(url)
    if isinstance(address, SqliteAddress):
        file = sqlite3.connect(f"{address.path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_S)
        with closing(file) as database:
            return database.execute(query).fetchall()
    from vgpuctl.store.libpq_files import connect
    from vgpuctl.store.postgresql import ENCODING

    limits = {"connect_timeout": "2", "client_encoding": ENCODING}
    with connect({**address.parameters, **limits}) as connection:
        return connection.execute(query.encode()).fetchall()
