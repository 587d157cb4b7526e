# SPDX-License-Identifier: Apache-2.0
"""The MIG instances of a GPU with who uses them: vGPUs by sysfs, processes by NVML (reference 5)."""

from collections import defaultdict
from typing import Dict, List, Sequence, Tuple

from vgpuctl.agent.facts import sharing
from vgpuctl.agent.facts.holders import OpenNodes, describe
from vgpuctl.agent.facts.nvml_mig import NvmlMig
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.facts import GpuInstance, Holder, MigFacts

# The value of gpu_instance_id where MIG is off.
_NO_INSTANCE = 0xFFFFFFFF


def read(host: Host, address: str, mig: NvmlMig, nodes: OpenNodes) -> MigFacts:
    """Join what NVML knows of a GPU's MIG with the vGPUs that exist, running or not. Raises Problem."""
    vgpus = read_vgpus(host, address, nodes) if mig.instances else {}
    instances = []
    for one in mig.instances:
        sitting = vgpus.get(one.id, ())
        holders = [holder for _, held in sitting for holder in held]
        holders += [describe(host, pid) for pid in one.pids if pid not in {holder.pid for holder in holders}]
        instances.append(
            GpuInstance(
                one.id,
                one.profile,
                one.start,
                one.size,
                bool(sitting or one.pids or one.vgpus),
                len(one.compute),
                tuple(holders),
                one.heterogeneous,
                one.compute,
            )
        )
    return MigFacts(mig.current, mig.pending, tuple(instances), mig.profiles)


def read_vgpus(host: Host, address: str, nodes: OpenNodes) -> Dict[int, Tuple[Tuple[str, Sequence[Holder]], ...]]:
    """Return {GPU instance: (type id, holders) of each vGPU that sits in it}.

    Drivers without `gpu_instance_id` do not tell where an idle vGPU sits; those refuse what would harm it.
    """
    found: Dict[int, List[Tuple[str, Sequence[Holder]]]] = defaultdict(list)
    for vgpu in sharing.read_vgpus(host, address):
        instance = _number(host.read_optional(f"{vgpu.folder}/nvidia/gpu_instance_id"))
        holders = nodes.holders_of_mdev(vgpu.uuid) if vgpu.uuid else nodes.holders_of_function(vgpu.function)
        found[instance].append((vgpu.type_id, holders))
    found.pop(_NO_INSTANCE, None)
    return {instance: tuple(vgpus) for instance, vgpus in found.items()}


def _number(text: "str | None") -> int:
    return int(text.strip()) if text and text.strip().isdigit() else _NO_INSTANCE
