# SPDX-License-Identifier: Apache-2.0
"""A store with node pools, and what a controller would do to their nodes, without hosts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc

from tests.autoscaler_client import Provider
from tests.autoscaler_protos import Release
from tests.stored_fleet import open_stored
from tests.unit.node_config.pools import pool_of
from vgpuctl.autoscaler.provider import provider_calls
from vgpuctl.autoscaler.server import serving
from vgpuctl.model.node_pool import ClusterJoin, Node, NodePool, NodeRole
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.usecases.kubernetes.serve_autoscaler import NodeGroups
from vgpuctl.usecases.node.node_pools import create_node_pool
from vgpuctl.usecases.node.settle_nodes import settle_pool
from vgpuctl.usecases.running.services import Services

GROUP = "acme/main/gpu/default"


def stored_pools(folder: Path) -> Services:
    """The pools gpu and big of acme's cluster main, lab of its cluster other, hpc of Slurm, and gpu of globex."""
    services = open_stored(folder, ("h1",))
    with services.store.transaction() as session:
        session.add_tenant("acme")
        session.add_tenant("globex")
    for made in (
        sized_pool("gpu"),
        sized_pool("big", maximum=2),
        sized_pool("lab", cluster="other"),
        sized_pool("hpc", role=NodeRole.SLURM),
        sized_pool("gpu", tenant="globex"),
    ):
        create_node_pool(services, made)
    return services


def sized_pool(name: str, **values: object) -> NodePool:
    """A pool without secrets, which need a key."""
    made = replace(pool_of(), name=name, join=ClusterJoin(), **values)  # type: ignore[arg-type]
    return replace(made, request=replace(made.request, name=name, tenant=made.tenant, network=None))


@contextmanager
def provider_of(
    services: Services, tenant: str = "acme", cluster: str = "main", release: Release = Release.FROM_1_35
) -> Iterator[Provider]:
    """A client of a running endpoint without TLS."""
    calls = provider_calls(NodeGroups(services, tenant, cluster))
    with serving(calls, "127.0.0.1", 0, None) as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Provider(channel, release)


def nodes(services: Services, name: str = "gpu", tenant: str = "acme") -> list[Node]:
    """The nodes of a pool."""
    with services.store.reading() as session:
        return session.nodes(tenant, name)


def make_vm(services: Services, node: Node) -> None:
    """Make the VM of a waiting node, as the controller does once there is room."""
    with services.store.transaction() as session:
        entry = session.queued(node.tenant, node.name)
        assert entry is not None
        session.leave_queue(entry.id)
        session.add_vm(Vm(node.vm_uuid, entry.request, "h1", VmState.RUNNING))


def refuse(services: Services, node: Node, refusal: str) -> None:
    """Note why a waiting node cannot be made, as the controller does."""
    with services.store.transaction() as session:
        entry = session.queued(node.tenant, node.name)
        assert entry is not None
        session.note_in_queue(entry.id, "the reason in words", refusal)


def lose_vm(services: Services, node: Node) -> None:
    """Delete the VM of a node behind its pool's back, and let a round of the controller see it."""
    with services.store.transaction() as session:
        session.delete_vm(node.vm_uuid)
        (pool,) = [one for one in session.node_pools(node.tenant) if one.name == node.pool]
    settle_pool(services, pool, shutdown_timeout_s=0)
