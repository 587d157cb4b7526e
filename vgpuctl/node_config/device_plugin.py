# SPDX-License-Identifier: Apache-2.0
"""How pods get the GPUs of a node: files of NVIDIA's device plugin, values of HAMi's and the GPU operator's charts.

Sources: NVIDIA/k8s-device-plugin, api/config/v1 and README; NVIDIA/gpu-operator, deployments/gpu-operator/values.yaml;
Project-HAMi/HAMi, charts/hami/values.yaml.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vgpuctl.errors import UsageError
from vgpuctl.model.node_pool import GpuSharing, MigStrategy, NodePool, NodeSharing
from vgpuctl.node_config.labels import HAMI_LABEL, config_key
from vgpuctl.yaml_text import yaml_text

CONFIG_MAP = "vgpuctl-device-plugin"
GPU_RESOURCE = "nvidia.com/gpu"
HAMI_SPLIT = 10
"""The usual deviceSplitCount of HAMi: so many pods share a GPU at most."""

Document = dict[str, Any]


def plugin_config(sharing: NodeSharing) -> Document:
    """Write the configuration of NVIDIA's device plugin for one node, of `version: v1`.

    The resource keeps its name nvidia.com/gpu, by which the cluster-autoscaler knows GPUs. Raises UsageError for what
    the plugin refuses or would read in another way.
    """
    check_sharing(sharing)
    document: Document = {
        "version": "v1",
        "flags": {
            "migStrategy": str(sharing.mig_strategy),
            "failOnInitError": True,
            "nvidiaDriverRoot": "/",
            "deviceDiscoveryStrategy": "auto",
            "plugin": {"passDeviceSpecs": False, "deviceListStrategy": ["envvar"], "deviceIDStrategy": "uuid"},
        },
    }
    if sharing.how in (GpuSharing.TIME_SLICING, GpuSharing.MPS):
        shared = {
            "renameByDefault": False,
            "failRequestsGreaterThanOne": True,
            "resources": [{"name": GPU_RESOURCE, "replicas": sharing.replicas}],
        }
        document["sharing"] = {"timeSlicing" if sharing.how is GpuSharing.TIME_SLICING else "mps": shared}
    return document


def check_sharing(sharing: NodeSharing) -> None:
    """Raise UsageError for a sharing that no configuration of the plugin says."""
    counts = sharing.how in (GpuSharing.TIME_SLICING, GpuSharing.MPS)
    if counts and (sharing.replicas is None or sharing.replicas < 2):
        raise UsageError(
            f"sharing {sharing.how} needs at least 2 replicas, not {sharing.replicas}", hint="give --replicas NUMBER"
        )
    if not counts and sharing.replicas is not None:
        raise UsageError(f"sharing {sharing.how} has no replicas", hint="leave --replicas out")
    if sharing.mig_strategy is not MigStrategy.NONE and sharing.how in (GpuSharing.MPS, GpuSharing.HAMI):
        raise UsageError(f"sharing {sharing.how} does not go with MIG", hint="use time-slicing")
    if sharing.mig_strategy is MigStrategy.MIXED and counts:
        raise UsageError(
            f"sharing {sharing.how} with the MIG strategy mixed needs a resource for each size of MIG device",
            hint="use --mig-strategy single",
        )


def gpu_resource(pool: NodePool) -> tuple[str, int]:
    """The resource that a node of the pool advertises, and how many: GPUs, times the pods that share each."""
    count = sum(gpu.count for gpu in pool.request.gpus)
    if pool.sharing.how is GpuSharing.HAMI:
        return GPU_RESOURCE, count * HAMI_SPLIT
    return GPU_RESOURCE, count * (pool.sharing.replicas or 1)


def config_map(pools: Sequence[NodePool], *, namespace: str = "kube-system") -> Document:
    """Write the ConfigMap with a file for each pool that NVIDIA's device plugin serves."""
    files = {
        config_key(pool): yaml_text(plugin_config(pool.sharing))
        for pool in _with_gpus(pools)
        if pool.sharing.how is not GpuSharing.HAMI
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": namespace},
        "data": files,
    }


def operator_values(pools: Sequence[NodePool]) -> Document:
    """Write values of the GPU operator's chart for a cluster of these pools.

    The driver and toolkit are the operator's only where no guest brings its own; labels of the nodes switch them off
    one by one in a mixed cluster. HAMi's device plugin takes the place of NVIDIA's, which would register the same
    resource.
    """
    of_gpus = _with_gpus(pools)
    return {
        "driver": {"enabled": any(not pool.request.guest_driver.is_wanted() for pool in of_gpus)},
        "toolkit": {"enabled": any(not pool.request.guest_driver.toolkit for pool in of_gpus)},
        "devicePlugin": {
            "enabled": any(pool.sharing.how is not GpuSharing.HAMI for pool in of_gpus),
            "config": {"name": CONFIG_MAP, "default": ""},
        },
        "sandboxWorkloads": {"enabled": False},
        "vgpuManager": {"enabled": False},
        "migManager": {"enabled": False},
        "cdi": {"enabled": True},
    }


def plugin_values() -> Document:
    """Write values of the chart of NVIDIA's device plugin alone, for clusters without the GPU operator."""
    return {"config": {"name": CONFIG_MAP, "default": "", "fallbackStrategies": ["named", "single"]}}


def hami_values(pools: Sequence[NodePool], nodes: Mapping[str, Sequence[str]]) -> Document | None:
    """Write values of HAMi's chart, None for a cluster without a pool that shares by HAMi. nodes: there are, by pool.

    Memory and cores are not scaled: a share that vgpuctl promises is not oversold inside the guest. GPUs are not split
    by MIG, since a vGPU's guest cannot do that.
    """
    shared = [pool for pool in _with_gpus(pools) if pool.sharing.how is GpuSharing.HAMI]
    if not shared:
        return None
    key, value = HAMI_LABEL
    plugin: Document = {
        "deviceSplitCount": HAMI_SPLIT,
        "deviceMemoryScaling": 1,
        "deviceCoreScaling": 1,
        "migStrategy": "none",
        "nvidiaNodeSelector": {key: value},
    }
    entries = [
        {
            "name": name,
            "operatingmode": "hami-core",
            "devicememoryscaling": 1,
            "devicecorescaling": 1,
            "devicesplitcount": HAMI_SPLIT,
            "migstrategy": "none",
            "filterdevices": {"uuid": [], "index": []},
        }
        for pool in shared
        for name in nodes.get(pool.name, ())
    ]
    if entries:
        plugin["nodeConfiguration"] = {"config": json.dumps({"nodeconfig": entries}, indent=2) + "\n"}
    return {"devicePlugin": plugin}


def _with_gpus(pools: Sequence[NodePool]) -> list[NodePool]:
    """The pools of Kubernetes with GPUs. Raises UsageError for a sharing that no configuration says."""
    found = [pool for pool in pools if pool.role.is_kubernetes and pool.request.gpus]
    for pool in found:
        check_sharing(pool.sharing)
    return found
