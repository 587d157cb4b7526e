# SPDX-License-Identifier: Apache-2.0
"""The amounts that the nodes of a pool offer to pods, as their cluster says. The template of a new node has the least.

GPUs are left out: a node says 0 until its device plugin runs, and the pool knows their number.
"""

from collections.abc import Mapping, Sequence

from vgpuctl.clusters.kubernetes.objects import ObjectError, quantity
from vgpuctl.model.cluster_member import ClusterMember
from vgpuctl.model.node_pool import NodePool
from vgpuctl.usecases.observed.node_states import NodeStatus
from vgpuctl.usecases.running.services import Services

_UNITS = {"cpu": 1000, "memory": 1, "ephemeral-storage": 1}
"""Parts of the unit of each resource: thousandths of CPUs, bytes."""


def note_amounts(
    services: Services, pool: NodePool, states: Sequence[NodeStatus], members: Mapping[str, ClusterMember]
) -> None:
    """Note the least of the nodes that are ready now; without any, what was noted before stays."""
    least: dict[str, int] = {}
    for one in states:
        member = members.get(one.node.name)
        if member is None or not member.is_ready or member.provider_id != pool.provider_id(one.node.vm_uuid):
            continue
        for resource, amount in _amounts(member).items():
            least[resource] = min(amount, least.get(resource, amount))
    if not least:
        return
    with services.store.reading() as session:
        is_known = session.least_allocatable(pool.tenant, pool.name) == least
    if not is_known:
        with services.store.transaction() as session:
            session.note_least_allocatable(pool, least)


def _amounts(member: ClusterMember) -> dict[str, int]:
    """The amounts of a node that can be read and are not 0."""
    found = {}
    for resource, per_unit in _UNITS.items():
        try:
            amount = quantity(member.allocatable.get(resource, "0"), per_unit, up=False)
        except ObjectError:
            continue
        if amount:
            found[resource] = amount
    return found
