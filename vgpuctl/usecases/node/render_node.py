# SPDX-License-Identifier: Apache-2.0
"""render-node: what a node of a pool gets, and what its cluster needs for it. Changes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import NotFound, StateError
from vgpuctl.local_files import make_folder, write_file
from vgpuctl.model.node_pool import Node, NodePool, Taint
from vgpuctl.node_config.documents import cluster_documents, node_document
from vgpuctl.node_config.join.files import Joining, NodeFile
from vgpuctl.node_config.join.setup import has_join, node_setup, show_digest
from vgpuctl.node_config.labels import node_labels, template_labels
from vgpuctl.store.store import Session
from vgpuctl.usecases.image.node_join import place_of
from vgpuctl.usecases.running.services import Services

NO_VM = "00000000-0000-0000-0000-000000000000"
"""Of a node that is only rendered: it has no VM, and so no provider id."""
_WHAT = "the files of a node"


@dataclass(frozen=True)
class RenderedNode:
    """A node with its files. name: of the node; the first of the pool where none was asked for.

    is_placed: whether it has a VM, whose place its labels tell. host: None without one. files: of the guest, with the
    digests of secrets in their place. join_problem: why there are none. cluster_files: by name.
    """

    pool: str
    name: str
    is_placed: bool
    host: str | None
    provider_id: str | None
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    files: tuple[NodeFile, ...]
    join_problem: str | None
    cluster_files: Mapping[str, str]


def render_node(services: Services, tenant: str, pool_name: str, node: str | None = None) -> RenderedNode:
    """Render a node of a pool as it is; without a name, one as it would be before it is placed.

    Raises NotFound for a pool or node that there is not.
    """
    with services.store.reading() as session:
        pool = session.node_pool(tenant, pool_name)
        found = None if node is None else _find(session, pool, node)
        vm = None if found is None else session.vm(tenant, found.name)
        if vm is not None and (found is None or vm.uuid != found.vm_uuid):
            vm = None
        labels = template_labels(pool) if vm is None else node_labels(pool, place_of(services, session, vm))
        pools = [
            one
            for one in session.node_pools(tenant)
            if one.cluster == pool.cluster and one.role.is_kubernetes == pool.role.is_kubernetes
        ]
        names = {one.name: [there.name for there in session.nodes(tenant, one.name)] for one in pools}
    name = pool.node_name(1) if found is None else found.name
    provider_id = pool.provider_id(found.vm_uuid) if found is not None and pool.role.is_kubernetes else None
    files, problem = _files(pool, name, NO_VM if found is None else found.vm_uuid, labels)
    of_cluster = cluster_documents(pools, names)
    if pool.role.is_kubernetes:
        of_cluster = {"node.yaml": node_document(name, provider_id, labels, pool), **of_cluster}
    return RenderedNode(
        pool.printed_name,
        name,
        vm is not None,
        None if vm is None else vm.host,
        provider_id,
        labels,
        pool.taints,
        files,
        problem,
        of_cluster,
    )


def write_rendered(folder: Path, rendered: RenderedNode) -> Sequence[str]:
    """Write the files below a folder, those of the guest under `guest`. Returns their paths below it.

    Raises FileNotWritten.
    """
    texts = {f"guest{one.path}": one.content for one in rendered.files} | dict(rendered.cluster_files)
    for path, text in texts.items():
        make_folder((folder / path).parent, _WHAT)
        write_file(folder / path, text, _WHAT)
    return list(texts)


def _find(session: Session, pool: NodePool, name: str) -> Node:
    nodes = session.nodes(pool.tenant, pool.name)
    for one in nodes:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in nodes[:10])
    raise NotFound(
        f"node pool {pool.printed_name} has no node {name!r}",
        hint=f"there are {known}" if known else "it has none; leave --node out to see how one would be",
    )


def _files(
    pool: NodePool, name: str, vm_uuid: str, labels: Mapping[str, str]
) -> tuple[tuple[NodeFile, ...], str | None]:
    if not has_join(pool):
        return (), "the pool has no --join-server: its image or user-data lets the nodes join"
    try:
        return node_setup(Joining(pool, name, vm_uuid, labels), show_digest).files, None
    except StateError as error:
        return (), error.message
