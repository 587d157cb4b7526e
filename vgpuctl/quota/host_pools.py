# SPDX-License-Identifier: Apache-2.0
"""Pools of hosts and who may use them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class HostPool:
    """Hosts that only some tenants may use. A host is in one pool at most; one in no pool serves every tenant."""

    name: str
    hosts: tuple[str, ...]
    tenants: tuple[str, ...]


def closed_hosts(tenant: str, pools: Sequence[HostPool]) -> dict[str, str]:
    """The hosts that a tenant may not use, with the pool each is in."""
    return {host: pool.name for pool in pools if tenant not in pool.tenants for host in pool.hosts}
