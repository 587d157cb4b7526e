# SPDX-License-Identifier: Apache-2.0
"""Switch mixed-size vGPUs on or off, for a whole GPU or one of its GPU instances (reference 3.3)."""

from typing import Any, List, Optional

from vgpuctl.agent.facts import mig, nvml_mig, nvml_vgpu, pci, sharing
from vgpuctl.agent.facts.holders import OpenNodes
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml, required
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, SetHeterogeneousMode


def ensure(host: Host, step: SetHeterogeneousMode, *, dry_run: bool) -> Change:
    """Set mixed-size mode; the driver takes it only while there is no vGPU.

    Raises Problem: `no-heterogeneous-mode` (also before VFs are enabled), `mig-instance-missing`, `vgpus-active`,
    those of NVML.
    """
    address = step.address
    pci.require(host, address)
    start = step.gpu_instance_start
    target = address if start is None else f"{address} GPU instance at {start}"
    with required(host) as nvml:
        device = nvml.device(address)
        with nvml.refusals(f"reading mixed-size mode of {target}"):
            instance = None if start is None else _instance(nvml, device, address, start)
            before = _read(nvml, device, instance)
        if before is None:
            raise Problem(
                ProblemCode.NO_HETEROGENEOUS_MODE,
                f"{target} has no mixed-size mode now",
                hint="it needs a board that has it, enabled VFs, and MIG off for the whole GPU",
            )
        if before == step.enabled:
            return Change(step.op, target, _word(before), _word(before), changed=False)
        vgpus = _vgpus(host, address, None if instance is None else instance.id)
        if vgpus:
            raise Problem(ProblemCode.VGPUS_ACTIVE, f"{target} has vGPUs: {', '.join(vgpus)}", hint="delete them first")
        if not dry_run:
            host.writes += 1
            with nvml.refusals(f"switching mixed-size mode of {target}"):
                _write(nvml, device, instance, enabled=step.enabled)
                if _read(nvml, device, instance) != step.enabled:
                    raise Problem(ProblemCode.READ_BACK_DIFFERS, f"{target} accepted mixed-size mode but reads another")
    return Change(step.op, target, _word(before), _word(step.enabled), changed=True)


def _instance(nvml: Nvml, device: Any, address: str, start: int) -> nvml_mig.NvmlInstance:
    found = nvml_mig.read(nvml, device)
    for one in found.instances if found else ():
        if one.start == start:
            return one
    raise Problem(ProblemCode.MIG_INSTANCE_MISSING, f"no GPU instance of {address} begins at slot {start}")


def _read(nvml: Nvml, device: Any, instance: Optional[nvml_mig.NvmlInstance]) -> Optional[bool]:
    if instance is None:
        return nvml_vgpu.read_heterogeneous(nvml, device)
    handle = nvml.library.nvmlDeviceGetGpuInstanceById(device, instance.id)
    mode = nvml.optional(nvml.library.nvmlGpuInstanceGetVgpuHeterogeneousMode, handle)
    return None if mode is None else bool(mode)


def _write(nvml: Nvml, device: Any, instance: Optional[nvml_mig.NvmlInstance], *, enabled: bool) -> None:
    library = nvml.library
    if instance is None:
        library.nvmlDeviceSetVgpuHeterogeneousMode(device, int(enabled))
    else:
        handle = library.nvmlDeviceGetGpuInstanceById(device, instance.id)
        library.nvmlGpuInstanceSetVgpuHeterogeneousMode(handle, int(enabled))


def _vgpus(host: Host, address: str, instance: Optional[int]) -> List[str]:
    """Return the vGPUs that stand in the way: of a GPU instance, or of the whole GPU."""
    if instance is not None:
        sitting = mig.read_vgpus(host, address, OpenNodes(host)).get(instance, ())
        return [f"type {type_id}" for type_id, _ in sitting]
    return [vgpu.uuid or vgpu.function for vgpu in sharing.read_vgpus(host, address)]


def _word(enabled: bool) -> str:
    return "mixed-size" if enabled else "equal-size"
