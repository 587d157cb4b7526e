# SPDX-License-Identifier: Apache-2.0
"""All that is written for one node and its cluster, as texts by file name."""

from collections.abc import Mapping, Sequence
from typing import Any

from vgpuctl.model.node_pool import NodePool
from vgpuctl.node_config.device_plugin import config_map, hami_values, operator_values, plugin_values
from vgpuctl.node_config.slurm_conf import SlurmSettings, gres_conf, slurm_conf
from vgpuctl.yaml_text import yaml_text


def cluster_documents(pools: Sequence[NodePool], nodes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The texts for the cluster that these pools are of, which is one; at least one pool. nodes: there are, by pool."""
    first = pools[0]
    if not first.role.is_kubernetes:
        text = slurm_conf(first.tenant, first.cluster, pools, SlurmSettings())
        return {"slurm.conf": text, "gres.conf": gres_conf(pools)}
    if not any(pool.request.gpus for pool in pools):
        return {}
    made = {
        "device-plugin-configmap.yaml": config_map(pools),
        "device-plugin-values.yaml": plugin_values(),
        "gpu-operator-values.yaml": operator_values(pools),
        "hami-values.yaml": hami_values(pools, nodes),
    }
    return {name: yaml_text(document) for name, document in made.items() if document is not None}


def node_document(name: str, provider_id: str | None, labels: Mapping[str, str], pool: NodePool) -> str:
    """The node as its API server would have it after it joined; the provider id is left out before there is one."""
    spec: dict[str, Any] = {} if provider_id is None else {"providerID": provider_id}
    if pool.taints:
        spec["taints"] = [
            {"key": one.key, **({"value": one.value} if one.value else {}), "effect": str(one.effect)}
            for one in pool.taints
        ]
    metadata = {"name": name, "labels": dict(sorted(labels.items()))}
    return yaml_text({"apiVersion": "v1", "kind": "Node", "metadata": metadata} | ({"spec": spec} if spec else {}))
