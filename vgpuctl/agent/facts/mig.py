# SPDX-License-Identifier: Apache-2.0
"""The MIG instances of a GPU with who uses them: vGPUs by sysfs, processes by NVML (reference 5)."""

from collections import defaultdict
from typing import Dict, List, Sequence, Tuple

from vgpuctl.agent.facts import mdev, pci, sriov, vgpu_profile
from vgpuctl.agent.facts.holders import OpenNodes, describe
from vgpuctl.agent.facts.nvml_mig import NvmlMig
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.facts import GpuInstance, Holder, MigFacts

# What gpu_instance_id reads where MIG is off.
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
    functions = [address, *(vf for _, vf in sriov.read_functions(host, address))]
    for function in functions[1:]:
        if vgpu_profile.is_offered(host, function):
            current = vgpu_profile.read_current(host, function)
            if current != vgpu_profile.NO_TYPE:
                instance = _number(host.read_optional(f"{pci.folder(function)}/nvidia/gpu_instance_id"))
                found[instance].append((current, nodes.holders_of_function(function)))
    for device in mdev.read_of(host, functions):
        instance = _number(host.read_optional(f"{mdev.BUS}/{device.uuid}/nvidia/gpu_instance_id"))
        found[instance].append((device.type_id, nodes.holders_of_mdev(device.uuid)))
    found.pop(_NO_INSTANCE, None)
    return {instance: tuple(vgpus) for instance, vgpus in found.items()}


def _number(text: "str | None") -> int:
    return int(text.strip()) if text and text.strip().isdigit() else _NO_INSTANCE
