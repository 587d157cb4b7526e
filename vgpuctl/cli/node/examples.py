# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "create-node-pool": (
        Example("create-node-pool acme/gpu --role k3s --max 4 --gpu A40-8Q --dry-run", "what would be made"),
        Example("create-node-pool acme/hpc --role slurm --cluster hpc --max 4 --gpu A40-8Q", "nodes for Slurm"),
    ),
    "set-node-pool": (
        Example("set-node-pool acme/hpc --max 6", "at most six nodes"),
        Example("set-node-pool acme/hpc --drain-timeout 10m --dry-run", "what would change"),
    ),
    "list-node-pools": (
        Example("list-node-pools -t acme", "the pools of a tenant"),
        Example("list-node-pools acme/hpc", "with each node, and why it is not ready"),
    ),
    "scale-node-pool": (
        Example("scale-node-pool acme/hpc 2", "want two nodes"),
        Example("scale-node-pool acme/hpc 0 --dry-run", "what would change"),
    ),
    "delete-node-pool": (
        Example("delete-node-pool acme/hpc --yes", "drain and delete its nodes first"),
        Example("delete-node-pool acme/hpc --drained --yes", "the nodes are empty already"),
    ),
    "render-node": (
        Example("render-node acme/hpc", "labels, join files, device plugin"),
        Example("render-node acme/hpc --to node-files", "as files"),
    ),
}
