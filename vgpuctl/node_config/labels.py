# SPDX-License-Identifier: Apache-2.0
"""The labels of a pool's nodes: where a node is, what it is made from, and what its GPUs promise.

Those of a template are known before a node is placed, and are the same for each node of the pool; a node has these
and its own. Slurm's features are in slurm_conf.py, since slurm.conf has them before a node is placed. Source of the
kubelet's rules: Kubernetes, pkg/kubelet/apis/well_known_labels and the admission plugin NodeRestriction.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.errors import UsageError
from vgpuctl.model import place_labels
from vgpuctl.model.constraints import Label
from vgpuctl.model.lease import Share
from vgpuctl.model.node_pool import GpuSharing, NodePool
from vgpuctl.sharing.type_names import numbered_now

GPU_LABEL = "vgpuctl.io/gpu"
"""On every node with a GPU and on no other: the label by which the cluster-autoscaler waits for device plugins."""
PLUGIN_CONFIG_LABEL = "nvidia.com/device-plugin.config"
"""Names the file of NVIDIA's device plugin for one node."""
RACK_KEYS = (place_labels.RACK, "rack")
"""The labels of a host of the inventory that name its rack, the first that it has."""
HAMI_LABEL = ("gpu", "on")
"""The node selector of the device plugin in HAMi's chart (charts/hami/values.yaml)."""

_LONGEST = 63
_NOT_IN_VALUE = re.compile(r"[^A-Za-z0-9._-]+")
_FIXED_SHARE = "fixed-share"
_OF_KUBERNETES = re.compile(r"(?:.*\.)?(?:kubernetes|k8s)\.io")
_ALLOWED_DOMAINS = re.compile(r"(?:.*\.)?(?:kubelet|node)\.kubernetes\.io")
_ALLOWED_KEYS = frozenset(
    (
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    )
)


@dataclass(frozen=True)
class NodePlace:
    """Where a node is, and the shares that it holds. facts: of its host as last read; None where nobody has."""

    host: str
    host_labels: frozenset[Label] = frozenset()
    facts: HostFacts | None = None
    shares: tuple[Share, ...] = ()


def label_value(text: str) -> str:
    """Make a valid label value of any text: other characters become '-', and a long text ends in a digest."""
    value = _NOT_IN_VALUE.sub("-", text).strip("._-")
    if len(value) > _LONGEST:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        value = f"{value[: _LONGEST - 9].rstrip('._-')}-{digest}"
    return value


def refuse_kubelets_refusals(labels: Sequence[Label]) -> None:
    """Raise UsageError for a label with which the kubelet does not start: of Kubernetes' own domains but a few."""
    for key, _ in labels:
        domain, slash, _name = key.rpartition("/")
        if not slash or not _OF_KUBERNETES.fullmatch(domain):
            continue
        if key not in _ALLOWED_KEYS and not _ALLOWED_DOMAINS.fullmatch(domain):
            raise UsageError(
                f"label {key}: a kubelet does not start with a label of {domain}",
                hint="use a domain of your own; set node-role.kubernetes.io/… with kubectl after the node has joined",
            )


def template_labels(pool: NodePool) -> dict[str, str]:
    """The labels that each node of a pool has, whatever its place. The pool's own win over ours."""
    labels = {
        "topology.kubernetes.io/zone": label_value(pool.zone),
        "vgpuctl.io/tenant": label_value(pool.tenant),
        "vgpuctl.io/cluster": label_value(pool.cluster),
        "vgpuctl.io/pool": label_value(pool.name),
        "node.kubernetes.io/instance-type": instance_type(pool),
    }
    gpus = pool.request.gpus
    if gpus:
        labels[GPU_LABEL] = label_value(gpus[0].text_of_one)
        labels["vgpuctl.io/gpu-count"] = str(sum(gpu.count for gpu in gpus))
        if len({gpu.profile for gpu in gpus}) == 1 and gpus[0].profile is not None:
            labels["vgpuctl.io/profile"] = label_value(gpus[0].profile)
        if pool.role.is_kubernetes:
            labels |= _plugin_labels(pool)
    return labels | dict(pool.labels)


def node_labels(pool: NodePool, place: NodePlace) -> dict[str, str]:
    """The labels of one placed node: its template's, its place, and what its shares promise."""
    own = {place_labels.HOST: label_value(place.host)}
    of_host = dict(place.host_labels)
    rack = next((of_host[key] for key in RACK_KEYS if key in of_host), None)
    if rack is not None:
        own[place_labels.RACK] = label_value(rack)
    nodes = {share.numa_node for share in place.shares}
    if len(nodes) == 1 and None not in nodes:
        own[place_labels.NUMA_NODE] = str(nodes.pop())
    domain = None if place.facts is None else nvlink_domain(place.host, place.facts, [one.gpu for one in place.shares])
    if domain is not None:
        own[place_labels.NVLINK_DOMAIN] = domain
    own |= _promised(place)
    return template_labels(pool) | {key: value for key, value in own.items() if value} | dict(pool.labels)


def instance_type(pool: NodePool) -> str:
    """The profile of the nodes, as the pool asks for it: `A40-24Q`, `2-L40S-48Q`; by CPUs without a GPU."""
    asked = "_".join(gpu.text for gpu in pool.request.gpus)
    return label_value(asked) or f"cpu-{pool.request.vcpus}"


def config_key(pool: NodePool) -> str:
    """The key of the pool's file in the ConfigMap of NVIDIA's device plugin."""
    return pool.name


def nvlink_domain(host: str, facts: HostFacts, addresses: Sequence[str]) -> str | None:
    """The name of the NVLink domain of these GPUs of a host; None without one, and where they are in several.

    With NVSwitch it is the fabric's cluster and clique, as NVIDIA's label nvidia.com/gpu.clique has it. Else it is the
    host with the first GPU of those that NVLinks connect.
    """
    gpus = {gpu.address: gpu for gpu in facts.gpus}
    found = {_domain_of(host, gpus, address) for address in addresses}
    return found.pop() if len(found) == 1 else None


def _domain_of(host: str, gpus: dict[str, Gpu], address: str) -> str | None:
    gpu = gpus.get(address)
    if gpu is None or gpu.topology is None:
        return None
    fabric = gpu.topology.fabric
    if fabric is not None and fabric.cluster_uuid is not None and fabric.clique is not None:
        return label_value(f"{fabric.cluster_uuid}.{fabric.clique}")
    linked, looking = {address}, [address]
    while looking:
        there = gpus.get(looking.pop())
        links = () if there is None or there.topology is None else there.topology.nvlinks or ()
        new = {one.peer for one in links if one.is_active and one.peer_kind == "gpu" and one.peer is not None} - linked
        linked |= new
        looking += sorted(new)
    return label_value(f"{host}-{min(linked)}") if len(linked) > 1 else None


def _plugin_labels(pool: NodePool) -> dict[str, str]:
    """For device plugins, and the GPU operator's switches for what the guest brings (controllers/state_manager.go)."""
    labels = {}
    if pool.request.guest_driver.is_wanted():
        labels["nvidia.com/gpu.deploy.driver"] = "false"
    if pool.request.guest_driver.toolkit:
        labels["nvidia.com/gpu.deploy.container-toolkit"] = "false"
    if pool.sharing.how is GpuSharing.HAMI:
        return {**labels, "nvidia.com/gpu.deploy.device-plugin": "false", HAMI_LABEL[0]: HAMI_LABEL[1]}
    labels[PLUGIN_CONFIG_LABEL] = config_key(pool)
    if pool.sharing.how is GpuSharing.MPS:
        # The daemon set of the MPS control daemon selects it (k8s-device-plugin, deployments/helm).
        labels["nvidia.com/mps.capable"] = "true"
    return labels


def _promised(place: NodePlace) -> dict[str, str]:
    """The promise of a node's shares. Of several GPUs the least, since a pod may get any of them."""
    shares = place.shares
    if not shares:
        return {}
    labels = {"vgpuctl.io/gpu-count": str(len(shares))}
    for key, values in (
        ("vgpuctl.io/profile", {share.profile for share in shares}),
        (place_labels.GPU_SHARING, {str(share.sharing) for share in shares}),
    ):
        if len(values) == 1:
            labels[key] = label_value(values.pop())
    gpus = {} if place.facts is None else {gpu.address: gpu for gpu in place.facts.gpus}
    for key, known in (
        (place_labels.GPU_MEMORY, [_memory_mib(share, gpus.get(share.gpu)) for share in shares]),
        (place_labels.GPU_MULTIPROCESSORS, [_multiprocessors(share, gpus.get(share.gpu)) for share in shares]),
        (place_labels.GPU_PERCENT, [_percent(share, gpus.get(share.gpu)) for share in shares]),
    ):
        there = [one for one in known if one is not None]
        if len(there) == len(shares):
            labels[key] = str(min(there))
    return labels


def _memory_mib(share: Share, gpu: Gpu | None) -> int | None:
    if share.framebuffer_mib is not None or gpu is None or share.type_id is not None:
        return share.framebuffer_mib
    return gpu.memory_mib


def _multiprocessors(share: Share, gpu: Gpu | None) -> int | None:
    """Of a share in a MIG instance of its own, as NVIDIA's tables have it; None for time slices of a whole GPU."""
    board = None if gpu is None else catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    table = None if board is None else catalog.mig_table(board)
    known = None if board is None else catalog.type_by_name(board, share.profile)
    if table is None or known is None or known.gi_profile is None or (known.max_per_gi or 1) > 1:
        return None
    return next((one.sm for one in table.profiles if one.name == known.gi_profile), None)


def _percent(share: Share, gpu: Gpu | None) -> int | None:
    """The part of its GPU's time, where it is fixed: a whole GPU, or a vGPU under the scheduler `fixed-share`.

    That scheduler gives each vGPU its part of the most that the type allows, used or not (NVIDIA vGPU User Guide).
    """
    if gpu is None:
        return None
    if share.type_id is None and share.mdev_uuid is None and share.function == share.gpu:
        return 100
    if gpu.scheduler is None or gpu.scheduler.policy != _FIXED_SHARE:
        return None
    now = numbered_now(share, gpu)
    most = next((one.max_instances for one in gpu.types if one.type_id == now.type_id), None)
    return None if not most else 100 // most
