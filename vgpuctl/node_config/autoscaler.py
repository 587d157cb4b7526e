# SPDX-License-Identifier: Apache-2.0
"""How a cluster-autoscaler is told of our endpoint: its cloud-config and its flags. Pure.

Source: kubernetes/autoscaler, cluster-autoscaler/cloudprovider/externalgrpc/README.md and config/flags/flags.go.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.model.node_pool import NodePool
from vgpuctl.yaml_text import yaml_text

FOLDER = "/etc/vgpuctl-autoscaler"
"""Where the autoscaler's pod has its secret: the cloud-config, and a key and certificate of it by Kubernetes' names."""
_FILE = "cloud-config.yaml"


@dataclass(frozen=True)
class AutoscalerConfig:
    """cloud_config: the text of the file. flags: of the cluster-autoscaler, besides those for its cluster."""

    cloud_config: str
    flags: tuple[str, ...]


def autoscaler_config(pools: Sequence[NodePool], address: str, *, has_tls: bool) -> AutoscalerConfig:
    """Write the configuration for an endpoint. address: HOST:PORT, the host as a name in its certificate.

    A node may take as long as the slowest pool lets it, before the autoscaler gives it up too. Without a path to a
    certificate the autoscaler speaks without TLS, whatever else is given.
    """
    document = {"address": address}
    if has_tls:
        document |= {"key": f"{FOLDER}/tls.key", "cert": f"{FOLDER}/tls.crt", "cacert": f"{FOLDER}/ca.crt"}
    slowest_s = max(pool.join_timeout_s for pool in pools)
    flags = (
        "--cloud-provider=externalgrpc",
        f"--cloud-config={FOLDER}/{_FILE}",
        f"--max-node-provision-time={int(slowest_s)}s",
    )
    return AutoscalerConfig(yaml_text(document), flags)
