# SPDX-License-Identifier: Apache-2.0
"""Checks of the NVSwitch fabric and of Fabric Manager, which sets it up."""

from collections.abc import Iterator

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.agent.wire.fabric import UNIT
from vgpuctl.agent.wire.facts import FabricFacts, Gpu
from vgpuctl.model.distribution import fabric_manager_packages, family_of
from vgpuctl.model.layout import LayoutKind
from vgpuctl.planner.doctor.examined import Examined
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.host_checks import HOST
from vgpuctl.sharing.fabric import NO_CONFIGURATION, has_nvswitch
from vgpuctl.sharing.host_fabric import fabric_of

_VGPU_MODE = 2


def fabric(seen: Examined) -> Iterator[Finding]:
    """Row 12: GPUs behind NVSwitch compute nothing before the fabric is set up."""
    mode = seen.diagnostics.fabric_mode
    for gpu in seen.nvidia_gpus():
        if gpu.topology is not None and gpu.topology.fabric is not None:
            yield from _fabric_of(gpu, gpu.topology.fabric, mode)
    if _needs_manager(seen):
        kinds = {seen.kind_of(gpu) for gpu in seen.nvidia_gpus()}
        if mode not in (None, _VGPU_MODE) and LayoutKind.VGPU in kinds:
            fix = "declare `fabric: {mode: vgpu}` (FABRIC_MODE=2) and run `vgpuctl apply-hosts --disrupt`"
            yield Finding(CheckId.FABRIC, Severity.WARNING, HOST, f"FABRIC_MODE is {mode}", fix)
    found = fabric_of(seen.facts)
    for lost in () if found is None else found.lost_links:
        read = f"module {lost.module} has lost {lost.lost} of its {lost.links} NVLinks"
        fix = "its partitions of several GPUs take no VM: reset it (`nvidia-smi --gpu-reset`), or replace it"
        yield Finding(CheckId.FABRIC, Severity.WARNING, lost.gpu or HOST, read, fix)
    for text in seen.said(CheckId.FABRIC):
        yield Finding(
            CheckId.FABRIC, Severity.WARNING, HOST, text, "see Fabric Manager's log; its version is the driver's"
        )


def manager(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: Fabric Manager is missing, does not run or does not answer, or is not the driver's."""
    if _needs_manager(seen) and seen.facts.why_unread("fabric_manager") is None:
        for read, fix in _of_manager(seen):
            yield Finding(CheckId.FABRIC_MANAGER, Severity.ERROR, HOST, read, fix)


def _needs_manager(seen: Examined) -> bool:
    """VMs have the cards of a full host, so that NVIDIA's driver has none."""
    has_driver = any(has_nvswitch(gpu) and gpu.driver == "nvidia" for gpu in seen.nvidia_gpus())
    return has_driver or fabric_of(seen.facts) is not None


def _of_manager(seen: Examined) -> Iterator[tuple[str, str]]:
    """What is wrong with Fabric Manager, and how to fix it."""
    found, unit, driver = seen.facts.fabric_manager, seen.unit(UNIT), seen.facts.nvidia_driver
    packages = fabric_manager_packages(family_of(seen.facts.distribution), driver)
    is_missing = unit is not None and unit.load == "not-found"
    if found is None or is_missing:
        state = "is not installed" if is_missing else NO_CONFIGURATION
        yield f"Fabric Manager {state}, and GPUs sit behind NVSwitches", packages
        return
    version = seen.diagnostics.fabric_version
    is_other = version is not None and driver is not None and version != driver
    if is_other:
        yield f"Fabric Manager is of version {version}, the driver of version {driver}", packages
    if unit is not None and unit.active != "active":
        yield f"{unit.name} is {unit.active}", f"systemctl start {unit.name}"
    elif found.needs_restart:
        read = "Fabric Manager was started before its configuration was written: a restart is pending"
        yield read, "`vgpuctl apply-hosts --disrupt` restarts it where its mode is declared, with no VM on the host"
    elif found.problem is not None and not is_other:
        read, _, fix = found.problem.partition("; ")
        yield read, fix


def _fabric_of(gpu: Gpu, found: FabricFacts, mode: int | None) -> Iterator[Finding]:
    read = f"fabric state is {found.describe()}"
    if found.is_between_partitions(mode):
        # Fabric Manager sets a GPU's fabric up with its partition, which a VM gets with its start.
        if gpu.holders or any(one.holders for one in gpu.vfs) or any(one.holders for one in gpu.mdevs):
            read += f", as without a partition (FABRIC_MODE={mode}), and a VM has it: its guest gets CUDA error 802"
            fix = "`vgpuctl repair` activates the partition of a VM of the store; of others' VMs, `fmpm -a NUMBER` does"
            yield Finding(CheckId.FABRIC, Severity.ERROR, gpu.address, read, fix)
    elif found.state == "completed" and not found.is_up():
        fix = "see Fabric Manager's log for why the set-up failed, and restart it; guests get CUDA error 802"
        yield Finding(CheckId.FABRIC, Severity.ERROR, gpu.address, read, fix)
    elif not found.is_up():
        fix = "start nvidia-fabricmanager of the driver's version and wait for `completed`; guests get CUDA error 802"
        yield Finding(CheckId.FABRIC, Severity.ERROR, gpu.address, read, fix)
    if found.faults:
        fix = "look at `nvidia-smi nvlink --status` and Fabric Manager's log"
        yield Finding(CheckId.FABRIC, Severity.WARNING, gpu.address, f"fabric: {', '.join(found.faults)}", fix)
