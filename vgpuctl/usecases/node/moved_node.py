# SPDX-License-Identifier: Apache-2.0
"""The labels of a Kubernetes node follow its VM to another host. A kubelet sets them only when it registers."""

from vgpuctl.model.cluster_member import ClusterMember
from vgpuctl.model.node_pool import Node, NodePool
from vgpuctl.model.place_labels import HOST, PLACE_LABELS
from vgpuctl.model.vm import Vm
from vgpuctl.node_config.labels import label_value, node_labels
from vgpuctl.usecases.image.node_join import place_of
from vgpuctl.usecases.running.cluster_link import ClusterLink
from vgpuctl.usecases.running.services import Services


def relabel_moved(
    services: Services, pool: NodePool, node: Node, vm: Vm, link: ClusterLink, member: ClusterMember
) -> str | None:
    """Give the node the labels of its VM's host, where it has those of another. Returns what was done.

    A node without the label of a host was never told its place by vgpuctl, and stays as it is. The labels of the pool
    win, as when the node was made. Raises ClusterError, InventoryError.
    """
    if member.labels.get(HOST) in (None, label_value(vm.host)):
        return None
    with services.store.reading() as session:
        wanted = node_labels(pool, place_of(services, session, vm))
    changes = {key: wanted.get(key) for key in PLACE_LABELS if wanted.get(key) != member.labels.get(key)}
    if not changes:
        return None
    link.relabel(node.name, changes)
    return f"labelled for host {vm.host}"
