# SPDX-License-Identifier: Apache-2.0
"""The configuration of k3s and RKE2 agents, which is one format.

It is a file of config.yaml.d, which is read after config.yaml: an image's or user's own config.yaml stays. Keys that
end in '+' add to its lists. Source: docs.k3s.io, installation/configuration.
"""

from vgpuctl.model.node_pool import NodeRole
from vgpuctl.node_config.join.files import Joining, NodeFile, SecretWriter, yaml_file

_FOLDERS = {NodeRole.K3S: "/etc/rancher/k3s", NodeRole.RKE2: "/etc/rancher/rke2"}


def rancher_files(joining: Joining, write: SecretWriter) -> tuple[NodeFile, ...]:
    """Write the agent's file, and its token in a file of its own, which the agent reads at each start.

    The kubelet brings its provider id. The cloud controller that k3s and RKE2 servers embed writes an id of its own
    to nodes without one, so servers are to run with `disable-cloud-controller: true` (docs/node-config.md).
    """
    pool = joining.pool
    assert pool.join.token is not None
    folder = _FOLDERS[pool.role]
    token_file = f"{folder}/vgpuctl-token"
    document = {
        "server": joining.server if "://" in joining.server else f"https://{joining.server}",
        "token-file": token_file,
        "node-name": joining.name,
        "node-label+": joining.label_list,
        "kubelet-arg+": [f"provider-id={joining.provider_id}"],
    }
    if pool.taints:
        document["node-taint+"] = [f"{one.key}={one.value}:{one.effect}" for one in pool.taints]
    return (
        NodeFile(token_file, "0600", write(pool.join.token) + "\n"),
        yaml_file(f"{folder}/config.yaml.d/50-vgpuctl.yaml", document),
    )
