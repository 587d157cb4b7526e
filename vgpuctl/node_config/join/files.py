# SPDX-License-Identifier: Apache-2.0
"""One node on its way into a cluster, and the files with which it joins, by the kind of cluster."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vgpuctl.model.node_pool import NodePool, NodeRole
from vgpuctl.model.secret_text import SecretText
from vgpuctl.yaml_text import yaml_text

SecretWriter = Callable[[SecretText], str]

HEADER = "# Written by vgpuctl when this guest was made.\n"


@dataclass(frozen=True)
class NodeFile:
    """One file. mode: as chmod takes it. owner: as chown takes it. content: its text, or its bytes in base64."""

    path: str
    mode: str
    content: str
    owner: str = "root:root"
    is_base64: bool = False


@dataclass(frozen=True)
class Joining:
    """A node with its pool, whose secrets are at hand. labels: of the node."""

    pool: NodePool
    name: str
    vm_uuid: str
    labels: Mapping[str, str]

    @property
    def provider_id(self) -> str:
        """The provider id, byte for byte as the cluster-autoscaler compares it."""
        return self.pool.provider_id(self.vm_uuid)

    @property
    def label_list(self) -> list[str]:
        """The labels as the kubelet's flag has them, by key."""
        return [f"{key}={value}" for key, value in sorted(self.labels.items())]

    @property
    def server(self) -> str:
        """The address to join."""
        assert self.pool.join.server is not None
        return self.pool.join.server


def yaml_file(path: str, document: Mapping[str, Any], mode: str = "0600") -> NodeFile:
    """A file in YAML, the keys in their order."""
    text = yaml_text(dict(document))
    return NodeFile(path, mode, HEADER + text)


# The JoinConfiguration of kubeadm (kubeadm.k8s.io/v1beta4, Kubernetes 1.31 and later).
JOIN_FILE = "/etc/vgpuctl/kubeadm-join.yaml"
"""It holds the bootstrap token. The script deletes it once the node has joined."""


def kubeadm_files(joining: Joining, write: SecretWriter) -> tuple[NodeFile, ...]:
    """Write the file for `kubeadm join --config`.

    The kubelet gets its provider id and labels before it registers, since the id cannot change afterwards. The
    certificate authority is always pinned: without its hash anybody on the way could be the API server.
    """
    join, taints = joining.pool.join, joining.pool.taints
    assert join.token is not None
    server = joining.server.removeprefix("https://").rstrip("/")
    document = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": server,
                "token": write(join.token),
                "caCertHashes": [join.ca_cert_hash],
            }
        },
        "nodeRegistration": {
            "name": joining.name,
            "taints": [
                {"key": one.key, "effect": str(one.effect)} | ({"value": one.value} if one.value else {})
                for one in taints
            ],
            "kubeletExtraArgs": [
                {"name": "node-labels", "value": ",".join(joining.label_list)},
                {"name": "provider-id", "value": joining.provider_id},
            ],
        },
    }
    return (yaml_file(JOIN_FILE, document),)


# The configuration of k3s and RKE2 agents, which is one format.
#
# It is a file of config.yaml.d, which is read after config.yaml: an image's or user's own config.yaml stays. Keys
# that end in '+' add to its lists. Source: docs.k3s.io, installation/configuration.
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


MUNGE_KEY = "/etc/munge/munge.key"


def slurm_files(joining: Joining, write: SecretWriter) -> tuple[NodeFile, ...]:
    """Write the munge key, and slurmd's options where Debian's and RHEL's units read them.

    munged refuses a key that others can read (munged(8)).
    """
    key = joining.pool.join.munge_key
    assert key is not None
    options = shlex.join(["--conf-server", joining.server, "-N", joining.name])
    text = f'{HEADER}SLURMD_OPTIONS="{options}"\n'
    return (
        NodeFile(MUNGE_KEY, "0400", write(key), owner="munge:munge", is_base64=True),
        NodeFile("/etc/default/slurmd", "0644", text),
        NodeFile("/etc/sysconfig/slurmd", "0644", text),
    )
