# SPDX-License-Identifier: Apache-2.0
"""A tenant as its onboarding file declares it (docs/onboarding.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vgpuctl.model.network import NetworkRequest
from vgpuctl.model.node_pool import NodePool
from vgpuctl.model.vm import VmRequest
from vgpuctl.model.vpc import VpcSpec


@dataclass(frozen=True)
class TenantFile:
    """Everything of one tenant. limits, guaranteed: amounts by resource, in the quota's unit.

    objects: what belongs to its networks, in an order in which they can be made. guest_probe: it allows `check-vm` to
    ask inside its guests. node_pools: with the content of the secrets that they name.
    """

    tenant: str
    limits: Mapping[str, int | None] = field(default_factory=dict)
    guaranteed: Mapping[str, int | None] = field(default_factory=dict)
    host_pools: tuple[str, ...] = ()
    networks: tuple[NetworkRequest, ...] = ()
    objects: tuple[VpcSpec, ...] = ()
    vms: tuple[VmRequest, ...] = ()
    guest_probe: bool = False
    node_pools: tuple[NodePool, ...] = ()
