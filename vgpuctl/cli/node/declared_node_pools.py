# SPDX-License-Identifier: Apache-2.0
"""create-node-pool, set-node-pool: their options come from the tables of vgpuctl/specs/node_pool.py."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vgpuctl.cli.node.node_pools import NODE_POOLS
from vgpuctl.cli.options.field_options import field_options
from vgpuctl.cli.options.vm_options import gpus_given, read_text_file
from vgpuctl.specs.node_pool import CHANGEABLE, NODE_POOL, POOL_VM

if TYPE_CHECKING:
    from vgpuctl.model.node_pool import NodePool
    from vgpuctl.usecases.running.services import Services


def _size(pool: "NodePool") -> str:
    return f"{pool.minimum} to {pool.maximum} nodes of cluster {pool.cluster}"


@NODE_POOLS.changes(_size, is_new=True)
@field_options(NODE_POOL, are_required=True)
@field_options(POOL_VM)
def create_node_pool(opened: "Services", name: str, tenant: str, **given: Any) -> "tuple[NodePool, bool]":
    """Create a pool of VMs that are nodes of a tenant's cluster. The cluster is one of Kubernetes or Slurm.

    The flags of create-vm say what each node is; without --gpu, or with `--gpu none`, it has no GPU. `vgpuctl
    controller` makes the nodes: the minimum at once, more when `scale-node-pool`, the cluster-autoscaler or Slurm asks
    for them.

    Run again, it changes nothing; with other values it refuses and says what differs.
    """
    from vgpuctl.specs.node_pool import read_pool_flags
    from vgpuctl.usecases.node.node_pools import create_node_pool

    written = {"name": name, **given, "gpus": gpus_given(given["gpus"])}
    return create_node_pool(opened, read_pool_flags(tenant, written, read_text_file))


@NODE_POOLS.changes(_size)
@field_options(replace(NODE_POOL, fields=tuple(CHANGEABLE)))
def set_node_pool(opened: "Services", name: str, tenant: str, **given: Any) -> "tuple[NodePool, bool]":
    """Change the bounds, labels, secrets or timeouts of a node pool. Nodes that are there keep what they were made
    with; new ones get the new values.
    """
    from vgpuctl.errors import UsageError
    from vgpuctl.usecases.node.node_pools import set_node_pool

    if all(value in (None, ()) for value in given.values()):
        raise UsageError("nothing to change", hint="give an option, for example --max 16; see set-node-pool --help")
    return set_node_pool(opened, tenant, name, given)
