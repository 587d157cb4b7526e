# SPDX-License-Identifier: Apache-2.0
"""Commands on the node pools of the tenant acme, and a round of the controller that makes and deletes their nodes."""

import random
from collections.abc import Mapping, Sequence

from tests.bench.day_checks import Seen
from tests.e2e.operator import Operator
from tests.proof.answers import Answer, run
from vgpuctl.model.vm import Vm

Words = tuple[str, ...]
ROUND: Words = ("controller", "--once", "--shutdown-timeout", "0")
NODE_KINDS = [*["scale-node-pool", "round"] * 4, *["create-node-pool"] * 3, "delete-node-pool"]
NODE_REFUSALS: Mapping[str, set[str]] = {
    "create-node-pool": {"state"},  # it is there with other values, or a VM has the name of a node
    "scale-node-pool": {"not-found", "state", "usage"},
    "delete-node-pool": {"not-found", "nodes-still-leave"},
}
"""What each may answer. Pools are changed and deleted by others meanwhile."""
MOST = 3
_POOLS = ("pool-a", "pool-b")
_GPUS = ("A40-8Q", "T4-4Q", "A40-24Q")
_ACME = ("--tenant", "acme")
_SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--disk", "8MiB")


def node_words(kind: str, dice: random.Random, seen: Seen) -> Words | None:
    """The command of this kind; None for a store without a pool or node to work on."""
    if kind == "round":
        return ROUND if seen.nodes else None
    if kind == "create-node-pool":
        bounds = ("--role", "k3s", "--min", str(dice.randint(0, 1)), "--max", str(MOST))
        return (kind, dice.choice(_POOLS), *_ACME, *bounds, "--gpu", dice.choice(_GPUS), *_SMALL)
    pools = [one.name for one in seen.node_pools if one.tenant == "acme"]
    if not pools:
        return None
    pool = dice.choice(pools)
    if kind == "scale-node-pool":
        return (kind, pool, str(dice.randint(0, MOST)), *_ACME)
    return (kind, pool, *_ACME, "--yes", "--drained", "--timeout", "0")


def without_nodes(vms: Sequence[Vm], seen: Seen) -> list[Vm]:
    """The VMs without the nodes: a node keeps its name, and the shape of its pool."""
    nodes = {one.vm_uuid for one in seen.nodes}
    return [vm for vm in vms if vm.uuid not in nodes]


def settle(operator: Operator, seen: Seen) -> Answer | None:
    """Run a round of the controller, as it follows every command soon. Returns None for a store without nodes."""
    return run(operator, *ROUND) if seen.nodes else None


def delete_pools(operator: Operator) -> None:
    """Delete every pool with its nodes."""
    for one in operator.json("list-node-pools"):
        pool = one["pool"]
        words = ("delete-node-pool", pool["name"], "--tenant", pool["tenant"], "--yes", "--drained", "--timeout", "0")
        operator.does(*words)
