# SPDX-License-Identifier: Apache-2.0
"""One node on its way into a cluster, and a file of its guest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vgpuctl.model.node_pool import NodePool
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
