# SPDX-License-Identifier: Apache-2.0
"""A step in words, for steps that have no summary of a plan: those that roll another one back."""

from collections.abc import Callable, Mapping
from typing import Any

from vgpuctl.agent.wire.cdi import FILE, SetContainerGpus
from vgpuctl.agent.wire.fabric import ActivatePartition, DeactivatePartition, RestorePartitions
from vgpuctl.agent.wire.network_function import SetNetworkFunction
from vgpuctl.agent.wire.sharing import VGPU_STEPS, DeleteMdev, SetFunctionParams, SetVfParams, StopFunction, VgpuStep
from vgpuctl.agent.wire.steps import (
    BindDriver,
    CreateGpuInstance,
    DestroyGpuInstance,
    HashRom,
    ResetFunction,
    ResetGpu,
    RestartFabricManager,
    SetFabricMode,
    SetHeterogeneousMode,
    SetHugepages,
    SetMigMode,
    SetOvnChassis,
    SetOvnDaemon,
    SetServiceActive,
    SetUplinkBridge,
    SetVgpuScheduler,
    SetVirtualFunctions,
    Step,
    TakeOutUplink,
)
from vgpuctl.agent.wire.tuning import (
    UNLOCKED,
    ClockStep,
    KeepPowerLimit,
    SetComputeMode,
    SetEccMode,
    SetGpuClocks,
    SetMemoryClocks,
    SetPowerLimit,
    clocks_in_words,
    watts,
)
from vgpuctl.model.guest_memory import format_page_size
from vgpuctl.planner.layout.vgpu_settings import describe_scheduler


def _on(is_on: bool) -> str:
    return "on" if is_on else "off"


def _vgpu(step: VgpuStep) -> str:
    if isinstance(step, DeleteMdev) or step.made is None:
        return f"remove the vGPU {step.device}"
    return f"make the vGPU {step.device} of type {step.profile or step.type_id} on {step.made[0]}"


def _instance(step: CreateGpuInstance | DestroyGpuInstance) -> str:
    place = "" if step.start is None else f" at {step.start}"
    return f"GPU instance {step.profile}{place} of {step.address}"


def _mixed_sizes(step: SetHeterogeneousMode) -> str:
    start = step.gpu_instance_start
    where = step.address if start is None else f"the GPU instance at {start} of {step.address}"
    return f"switch mixed-size mode of {where} {_on(step.enabled)}"


def _uplink(step: SetUplinkBridge) -> str:
    if step.interface is None:
        return f"delete the bridge {step.bridge}"
    return f"have {step.interface} in the bridge {step.bridge}"


def _power_limit(step: SetPowerLimit) -> str:
    limit = "the board's default" if step.limit_mw is None else watts(step.limit_mw)
    return f"limit the power of {step.address} to {limit}"


def _kept_limit(step: KeepPowerLimit) -> str:
    if step.limit_mw is None:
        return f"have no tuned power limit of {step.address} set at boot"
    return f"have the tuned power limit of {step.address}, {watts(step.limit_mw)}, set at boot"


def describe_clocks(step: ClockStep) -> str:
    """A step that locks or unlocks clocks, in words."""
    if step.clocks_mhz == UNLOCKED:
        return f"unlock the {step.domain.name} of {step.address}"
    return f"lock the {step.domain.name} of {step.address} to {clocks_in_words(step.clocks_mhz)}"


WORDS: Mapping[type, Callable[[Any], str]] = {
    SetVirtualFunctions: lambda step: f"have {step.count} VFs on {step.address}",
    **dict.fromkeys(VGPU_STEPS, _vgpu),
    SetVfParams: lambda step: f"set {step.params} of the VF {step.address}",
    SetFunctionParams: lambda step: f"set {step.params} of {step.target}",
    StopFunction: lambda step: f"stop the work of the VF {step.address}",
    BindDriver: lambda step: f"bind {', '.join(step.addresses)} to {step.driver or 'the driver that the kernel picks'}",
    ResetFunction: lambda step: f"reset {step.address}",
    HashRom: lambda step: f"read the ROM of {step.address}",
    SetMigMode: lambda step: f"switch MIG of {step.address} {_on(step.enabled)}",
    ResetGpu: lambda step: f"reset the GPU {step.address}",
    CreateGpuInstance: lambda step: f"create the {_instance(step)}",
    DestroyGpuInstance: lambda step: f"destroy the {_instance(step)}",
    SetHeterogeneousMode: _mixed_sizes,
    SetVgpuScheduler: lambda step: (
        f"set the vGPU scheduler of {step.address} to {describe_scheduler(step.policy, step.time_slice_us)}"
    ),
    SetPowerLimit: _power_limit,
    SetGpuClocks: describe_clocks,
    SetMemoryClocks: describe_clocks,
    SetEccMode: lambda step: f"switch ECC of {step.address} {_on(step.enabled)}",
    SetComputeMode: lambda step: f"set the compute mode of {step.address} to {step.mode}",
    KeepPowerLimit: _kept_limit,
    SetServiceActive: lambda step: f"{'start' if step.active else 'stop'} {step.name}",
    SetHugepages: lambda step: f"have {step.count} huge pages of {format_page_size(step.size_kib)}",
    SetFabricMode: lambda step: (
        f"write FABRIC_MODE={step.mode} and FABRIC_MODE_RESTART={int(step.keeps_partitions)} for Fabric Manager"
    ),
    RestartFabricManager: lambda step: "restart Fabric Manager where it does not run with its configuration",
    SetNetworkFunction: lambda step: f"{'have' if step.function else 'remove'} the network function {step.name}",
    SetOvnDaemon: lambda step: f"{'start' if step.active else 'stop'} OVN's {step.part}",
    SetOvnChassis: lambda step: f"have the OVN chassis as before: {step.chassis}",
    SetUplinkBridge: _uplink,
    TakeOutUplink: lambda step: f"take {step.interface} out of the bridge {step.bridge}",
    SetContainerGpus: lambda step: (
        f"have {', '.join(step.gpus)} in {FILE}, for containers of the host" if step.gpus else f"remove {FILE}"
    ),
    ActivatePartition: lambda step: f"activate the {step.used.target}",
    DeactivatePartition: lambda step: f"deactivate the {step.used.target}",
    RestorePartitions: lambda step: f"have the {'; '.join(one.target for one in step.used) or 'fabric'} active",
}


def describe_step(step: Step) -> str:
    """A step in words: `have 0 VFs on 0000:41:00.0`."""
    return WORDS[type(step)](step)
