# SPDX-License-Identifier: Apache-2.0
"""The JoinConfiguration of kubeadm (kubeadm.k8s.io/v1beta4, Kubernetes 1.31 and later)."""

from vgpuctl.node_config.join.files import Joining, NodeFile, SecretWriter, yaml_file

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
