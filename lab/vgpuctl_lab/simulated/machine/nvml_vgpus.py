# SPDX-License-Identifier: Apache-2.0
"""The simulated NVML's functions of vGPUs: types, places, running ones, mixed sizes, scheduler (reference 3.3, 3.4)."""

import zlib
from types import SimpleNamespace
from typing import Any

from vgpuctl_lab.simulated.machine import modes, rules
from vgpuctl_lab.simulated.machine.nvml_session import DeviceHandle, Session
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, MIB, NO_INSTANCE, NvmlError
from vgpuctl_lab.simulated.machine.shape import CardShape, VgpuType
from vgpuctl_lab.simulated.machine.state import Scheduler, Vgpu, is_nvidia

_INVALID_ARGUMENT = CONSTANTS["NVML_ERROR_INVALID_ARGUMENT"]
_NOT_SUPPORTED = CONSTANTS["NVML_ERROR_NOT_SUPPORTED"]
_NOT_FOUND = CONSTANTS["NVML_ERROR_NOT_FOUND"]
_TYPE_CAPABILITIES = 5
_ALONE = {2: rules.ALONE_IN_VM, 3: rules.ALONE_BY_TYPE, 4: rules.ALONE_BY_SIZE}
_ARR_DISABLE = CONSTANTS["NVML_VGPU_SCHEDULER_ARR_DISABLE"]


class VgpuFunctions(Session):
    """vGPUs of the machine's cards."""

    def device_get_supported_vgpus(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetSupportedVgpus: the ids of the types a card has, creatable now or not."""
        card = self.card(device)
        if not card.types:
            raise NvmlError(_NOT_SUPPORTED)
        return [each.type_id for each in card.types]

    def device_get_creatable_vgpus(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetCreatableVgpus: on some function that is free."""
        card = self.card(device)
        ruling = rules.Ruling(self.state, card)
        functions = self.state.vfs_of(card) if rules.is_on_vfs(card) else [card.address]
        used = {vgpu.function for vgpu in self.state.vgpus_of(card)} if rules.is_on_vfs(card) else set()
        free = next((function for function in functions if function not in used), None)
        if free is None:
            return []
        return [each.type_id for each in card.types if ruling.status(free, each)[0] == rules.OK]

    def vgpu_type_get_name(self, type_id: int) -> str:
        """nvmlVgpuTypeGetName."""
        return self.type(type_id).full_name

    def vgpu_type_get_framebuffer_size(self, type_id: int) -> int:
        """nvmlVgpuTypeGetFramebufferSize, in bytes."""
        return self.type(type_id).framebuffer_mib * MIB

    def vgpu_type_get_num_display_heads(self, type_id: int) -> int:
        """nvmlVgpuTypeGetNumDisplayHeads."""
        return self._described(type_id, "num_heads=")[0]

    def vgpu_type_get_resolution(self, type_id: int) -> list[int]:
        """nvmlVgpuTypeGetResolution of the first head: width and height."""
        return self._described(type_id, "max_resolution=")

    def vgpu_type_get_frame_rate_limit(self, type_id: int) -> int:
        """nvmlVgpuTypeGetFrameRateLimit."""
        return self._described(type_id, "frl_config=")[0]

    def _described(self, type_id: int, key: str) -> list[int]:
        """The numbers behind a key of a type's description."""
        text = self.type(type_id).description.partition(key)[2].partition(",")[0]
        return [int(number) for number in text.split("x")]

    def vgpu_type_get_max_instances(self, device: DeviceHandle, type_id: int) -> int:
        """nvmlVgpuTypeGetMaxInstances on one card."""
        each = self.card(device).type_of(type_id)
        if each is None:
            raise NvmlError(_INVALID_ARGUMENT)
        return each.max_instances

    def vgpu_type_get_gpu_instance_profile_id(self, type_id: int) -> int:
        """nvmlVgpuTypeGetGpuInstanceProfileId; all ones for a time-sliced type."""
        profile = self.type(type_id).gi_profile
        return NO_INSTANCE if profile is None else profile

    def vgpu_type_get_max_instances_per_gpu_instance(self, type_id: int) -> int:
        """nvmlVgpuTypeGetMaxInstancesPerGpuInstance."""
        each = self.type(type_id)
        if each.gi_profile is None:
            raise NvmlError(_NOT_SUPPORTED)
        return each.max_per_instance

    def vgpu_type_get_capabilities(self, type_id: int, capability: int) -> int:
        """nvmlVgpuTypeGetCapabilities: a type has no NVLink and no GPUDirect, and goes beside any by default."""
        if not 0 <= capability < _TYPE_CAPABILITIES:
            raise NvmlError(_INVALID_ARGUMENT)
        self.type(type_id)
        cards = (card for card in self.machine.shape.cards if card.type_of(type_id) is not None)
        return int(any(self.state.fault(card, rules.TYPES_ALONE) & _ALONE.get(capability, 0) for card in cards))

    def device_get_vgpu_type_supported_placements(self, device: DeviceHandle, type_id: int) -> SimpleNamespace:
        """nvmlDeviceGetVgpuTypeSupportedPlacements."""
        card, each = self._placed(device, type_id)
        del card
        return _placements(each, list(each.placements))

    def device_get_vgpu_type_creatable_placements(self, device: DeviceHandle, type_id: int) -> SimpleNamespace:
        """nvmlDeviceGetVgpuTypeCreatablePlacements, in mixed-size mode."""
        card, each = self._placed(device, type_id)
        pool = rules.Ruling(self.state, card).pool(None)
        if not pool.mixes_sizes:
            raise NvmlError(_NOT_SUPPORTED)
        return _placements(each, pool.creatable(each))

    def device_get_vgpu_heterogeneous_mode(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetVgpuHeterogeneousMode."""
        card = self.card(device)
        if not modes.has_mixed_sizes(self.state, card, None):
            raise NvmlError(_NOT_SUPPORTED)
        return int(card.address in self.state.mixed_sizes)

    def device_set_vgpu_heterogeneous_mode(self, device: DeviceHandle, mode: int) -> int:
        """nvmlDeviceSetVgpuHeterogeneousMode."""
        card = self.card(device)
        with self.change() as state:
            modes.set_mixed_sizes(state, card, None, enabled=bool(mode))
        return 0

    def device_get_vgpu_scheduler_state(self, device: DeviceHandle) -> SimpleNamespace:
        """nvmlDeviceGetVgpuSchedulerState."""
        return self.scheduler_state(self.card(device))

    def device_get_vgpu_scheduler_state_v2(self, device: DeviceHandle, _wanted: Any) -> SimpleNamespace:
        """nvmlDeviceGetVgpuSchedulerState_v2: without the mode of the adaptive round robin."""
        return newer_scheduler_state(self.scheduler_state(self.card(device)))

    def scheduler_state(self, card: CardShape) -> SimpleNamespace:
        """The scheduler of a card as the older call tells it."""
        if not card.types:
            raise NvmlError(_NOT_SUPPORTED)
        now = modes.scheduler(self.state, card)
        # The numbers are those of the current schedule: 0 while nothing is scheduled.
        is_scheduling = now.policy != modes.BEST_EFFORT and self.state.is_used(card)
        slice_ns, average = (now.slice_ns, now.average) if is_scheduling else (0, 0)
        return SimpleNamespace(
            schedulerPolicy=now.policy,
            arrMode=now.arr,
            schedulerParams=SimpleNamespace(
                vgpuSchedData=SimpleNamespace(timeslice=slice_ns),
                vgpuSchedDataWithARR=SimpleNamespace(avgFactor=average, timeslice=slice_ns),
            ),
        )

    def device_set_vgpu_scheduler_state(self, device: DeviceHandle, wanted: Any) -> int:
        """nvmlDeviceSetVgpuSchedulerState: a time slice counts only with the adaptive round robin off."""
        card = self.card(device)
        policy, arr = int(wanted.schedulerPolicy), int(wanted.enableARRMode)
        scheduler = Scheduler(policy, arr)
        if arr == _ARR_DISABLE:
            scheduler.slice_ns = int(wanted.schedulerParams.vgpuSchedData.timeslice)
        with self.change() as state:
            modes.set_scheduler(self.machine, state, card, scheduler)
        return 0

    # Running vGPUs, by a number that lasts as long as they do

    def device_get_active_vgpus(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetActiveVgpus: those of running VMs."""
        card = self.card(device)
        return [number_of(vgpu) for vgpu in self.state.vgpus_of(card) if self.state.holder_of(vgpu) is not None]

    def vgpu_instance_get_gpu_instance_id(self, number: int) -> int:
        """nvmlVgpuInstanceGetGpuInstanceId; all ones without MIG."""
        instance = self.running(number).instance
        return NO_INSTANCE if instance is None else instance

    def vgpu_instance_get_placement_id(self, number: int) -> int:
        """nvmlVgpuInstanceGetPlacementId."""
        return self.running(number).placement

    def vgpu_instance_get_type(self, number: int) -> int:
        """nvmlVgpuInstanceGetType."""
        return self.running(number).type_id

    def vgpu_instance_get_vm_id(self, number: int) -> tuple[str, int]:
        """nvmlVgpuInstanceGetVmID: a UUID (1)."""
        return self.state.holder_of(self.running(number)) or "", 1

    def vgpu_instance_get_mdev_uuid(self, number: int) -> str:
        """nvmlVgpuInstanceGetMdevUUID."""
        uuid = self.running(number).uuid
        if uuid is None:
            raise NvmlError(_NOT_SUPPORTED)
        return uuid

    def running(self, number: int) -> Vgpu:
        """The vGPU of NVML's number, which ends with its VM."""
        for vgpu in self.state.vgpus:
            if number_of(vgpu) == number and self.state.holder_of(vgpu) is not None:
                return vgpu
        raise NvmlError(_NOT_FOUND)

    def type(self, type_id: int) -> VgpuType:
        """A vGPU type of some card."""
        for card in self.machine.shape.cards:
            each = card.type_of(int(type_id)) if is_nvidia(card) else None
            if each is not None:
                return each
        raise NvmlError(_INVALID_ARGUMENT)

    def _placed(self, device: DeviceHandle, type_id: int) -> tuple[CardShape, VgpuType]:
        card = self.card(device)
        each = card.type_of(int(type_id))
        if each is None:
            raise NvmlError(_INVALID_ARGUMENT)
        if each.gi_profile is not None or not modes.has_mixed_sizes(self.state, card, None):
            raise NvmlError(_NOT_SUPPORTED)
        return card, each


def number_of(vgpu: Vgpu) -> int:
    """NVML's id of a running vGPU."""
    return zlib.crc32((vgpu.uuid or vgpu.function).encode()) or 1


def _placements(each: VgpuType, starts: list[int]) -> SimpleNamespace:
    return SimpleNamespace(placementSize=each.placement_size, count=len(starts), placementIds=starts)


def newer_scheduler_state(state: SimpleNamespace) -> SimpleNamespace:
    """A scheduler as the newer calls tell it."""
    is_off = state.arrMode == _ARR_DISABLE
    chosen = state.schedulerParams
    return SimpleNamespace(
        schedulerPolicy=state.schedulerPolicy,
        avgFactor=0 if is_off else chosen.vgpuSchedDataWithARR.avgFactor,
        timeslice=chosen.vgpuSchedData.timeslice if is_off else chosen.vgpuSchedDataWithARR.timeslice,
    )
