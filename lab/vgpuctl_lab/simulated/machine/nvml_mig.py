# SPDX-License-Identifier: Apache-2.0
"""The simulated NVML's functions of MIG (reference 5)."""

from types import SimpleNamespace
from typing import Any

from vgpuctl_lab.simulated.machine import modes
from vgpuctl_lab.simulated.machine.nvml_session import DeviceHandle, MigDeviceHandle, Session
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, InstanceHandle, NvmlError, Placement
from vgpuctl_lab.simulated.machine.shape import CardShape, ComputeProfile, Mig, MigProfile
from vgpuctl_lab.simulated.machine.state import GpuInstance

_INVALID_ARGUMENT = CONSTANTS["NVML_ERROR_INVALID_ARGUMENT"]
_NOT_SUPPORTED = CONSTANTS["NVML_ERROR_NOT_SUPPORTED"]
_INSUFFICIENT_SIZE = CONSTANTS["NVML_ERROR_INSUFFICIENT_SIZE"]


class MigFunctions(Session):
    """MIG mode, GPU instances and compute instances."""

    def device_get_mig_mode(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetMigMode: current and pending."""
        card = self.card(device)
        if card.mig is None:
            raise NvmlError(_NOT_SUPPORTED)
        return [int(one) for one in self.state.mig_mode(card)]

    def device_set_mig_mode(self, device: DeviceHandle, mode: int) -> int:
        """nvmlDeviceSetMigMode: 0, or why the mode is pending."""
        card = self.card(device)
        if mode not in (0, 1):
            raise NvmlError(_INVALID_ARGUMENT)
        with self.change() as state:
            return modes.set_mig_mode(state, card, enabled=bool(mode))

    def device_get_gpu_instance_profile_info(
        self, device: DeviceHandle, number: int, version: int = 2
    ) -> SimpleNamespace:
        """nvmlDeviceGetGpuInstanceProfileInfo[V], by NVML's constant; version 1 has no name."""
        card = self.card(device)
        if not 0 <= number < CONSTANTS["NVML_GPU_INSTANCE_PROFILE_COUNT"] or version not in (1, 2):
            raise NvmlError(_INVALID_ARGUMENT)
        for profile in card.mig.profiles if card.mig else ():
            if profile.nvml == number:
                return _profile_info(profile, with_name=version > 1)
        raise NvmlError(_NOT_SUPPORTED)

    def device_get_gpu_instance_possible_placements(
        self, device: DeviceHandle, profile_id: int, placements: Any, count: Any
    ) -> int:
        """nvmlDeviceGetGpuInstancePossiblePlacements, in MIG mode; without an array only their count."""
        _, profile = self._profile(device, profile_id)
        room, count = _value(count), _of(count)
        count.value = len(profile.starts)
        if placements is not None:
            if room < len(profile.starts):
                raise NvmlError(_INSUFFICIENT_SIZE)
            for index, start in enumerate(profile.starts):
                placements[index] = Placement(start, profile.size)
        return 0

    def device_get_gpu_instance_remaining_capacity(self, device: DeviceHandle, profile_id: int) -> int:
        """nvmlDeviceGetGpuInstanceRemainingCapacity."""
        card, profile = self._profile(device, profile_id)
        space = modes.gpu_space(self.state, card, _mig(card))
        return space.remaining(modes.part_of(profile))

    def device_create_gpu_instance(self, device: DeviceHandle, profile_id: int) -> InstanceHandle:
        """nvmlDeviceCreateGpuInstance: the driver chooses where."""
        return self._create(device, profile_id, None)

    def device_create_gpu_instance_with_placement(
        self, device: DeviceHandle, profile_id: int, placement: Any
    ) -> InstanceHandle:
        """nvmlDeviceCreateGpuInstanceWithPlacement."""
        _, profile = self._profile(device, profile_id)
        wanted = _of(placement)
        if wanted.size != profile.size:
            raise NvmlError(_INVALID_ARGUMENT)
        return self._create(device, profile_id, int(wanted.start))

    def gpu_instance_destroy(self, handle: InstanceHandle) -> int:
        """nvmlGpuInstanceDestroy."""
        card = self.card_of_instance(handle)
        with self.change() as state:
            modes.destroy_instance(state, card, self.instance(state, handle))
        return 0

    def device_get_gpu_instances(self, device: DeviceHandle, profile_id: int, instances: Any, count: Any) -> int:
        """nvmlDeviceGetGpuInstances of one profile."""
        card, _ = self._profile(device, profile_id)
        found = [one for one in self.state.instances_of(card) if one.profile_id == profile_id]
        for index, one in enumerate(found):
            instances[index] = InstanceHandle(card.number, one.id)
        _of(count).value = len(found)
        return 0

    def device_get_gpu_instance_by_id(self, device: DeviceHandle, number: int) -> InstanceHandle:
        """nvmlDeviceGetGpuInstanceById."""
        handle = InstanceHandle(self.card(device).number, number)
        self.instance(self.state, handle)
        return handle

    def gpu_instance_get_info(self, handle: InstanceHandle) -> SimpleNamespace:
        """nvmlGpuInstanceGetInfo."""
        one = self.instance(self.state, handle)
        return SimpleNamespace(id=one.id, profileId=one.profile_id, placement=Placement(one.start, one.size))

    def gpu_instance_get_compute_instance_profile_info(
        self, handle: InstanceHandle, number: int, engines: int, version: int = 2
    ) -> SimpleNamespace:
        """nvmlGpuInstanceGetComputeInstanceProfileInfo[V], by NVML's constant, which is the id too."""
        if not 0 <= number < CONSTANTS["NVML_COMPUTE_INSTANCE_PROFILE_COUNT"] or engines or version not in (1, 2):
            raise NvmlError(_INVALID_ARGUMENT)
        card, instance = self.card_of_instance(handle), self.instance(self.state, handle)
        profile = _mig(card).profile(instance.profile_id)
        for part in profile.computes if profile else ():
            if part.profile_id == number and profile is not None:
                return _compute_info(profile, part, with_name=version > 1)
        raise NvmlError(_NOT_SUPPORTED)

    def gpu_instance_create_compute_instance(self, handle: InstanceHandle, profile_id: int) -> InstanceHandle:
        """nvmlGpuInstanceCreateComputeInstance: the driver chooses where."""
        card = self.card_of_instance(handle)
        with self.change() as state:
            instance = self.instance(state, handle)
            compute = modes.create_compute(state, card, instance, profile_id, None)
        return InstanceHandle(handle.card, handle.instance, compute.id)

    def gpu_instance_get_compute_instances(
        self, handle: InstanceHandle, profile_id: int, instances: Any, count: Any
    ) -> int:
        """nvmlGpuInstanceGetComputeInstances of one profile."""
        computes = self.instance(self.state, handle).computes
        found = [one for one in computes if one.profile_id == profile_id]
        for index, one in enumerate(found):
            instances[index] = InstanceHandle(handle.card, handle.instance, one.id)
        _of(count).value = len(found)
        return 0

    def compute_instance_destroy(self, handle: InstanceHandle) -> int:
        """nvmlComputeInstanceDestroy."""
        card = self.card_of_instance(handle)
        with self.change() as state:
            instance = self.instance(state, handle)
            compute = next((one for one in instance.computes if one.id == handle.compute), None)
            if compute is None:
                raise modes.Refused(modes.NOT_FOUND)
            modes.destroy_compute(state, card, instance, compute)
        return 0

    # MIG devices: compute instances on the host

    def device_get_max_mig_device_count(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetMaxMigDeviceCount: 0 of a GPU without MIG."""
        mig = self.card(device).mig
        return mig.slices if mig is not None else 0

    def device_get_mig_device_handle_by_index(self, device: DeviceHandle, index: int) -> MigDeviceHandle:
        """nvmlDeviceGetMigDeviceHandleByIndex, in the order of GPU and compute instances."""
        card = self.card(device)
        parts = [(one.id, part.id) for one in self.state.instances_of(card) for part in one.computes]
        if not 0 <= index < _mig(card).slices:
            raise NvmlError(_INVALID_ARGUMENT)
        if index >= len(parts):
            raise NvmlError(CONSTANTS["NVML_ERROR_NOT_FOUND"])
        return MigDeviceHandle(card.address, *parts[index])

    def device_get_gpu_instance_id(self, part: MigDeviceHandle) -> int:
        """nvmlDeviceGetGpuInstanceId of a MIG device."""
        if not isinstance(part, MigDeviceHandle):
            raise NvmlError(_INVALID_ARGUMENT)
        return part.instance

    # Mixed sizes, of a GPU instance here, of a card among the functions of vGPUs

    def gpu_instance_get_vgpu_heterogeneous_mode(self, handle: InstanceHandle) -> int:
        """nvmlGpuInstanceGetVgpuHeterogeneousMode."""
        card, instance = self.card_of_instance(handle), self.instance(self.state, handle)
        if not modes.has_mixed_sizes(self.state, card, instance):
            raise NvmlError(_NOT_SUPPORTED)
        return int(instance.mixes_sizes)

    def gpu_instance_set_vgpu_heterogeneous_mode(self, handle: InstanceHandle, mode: int) -> int:
        """nvmlGpuInstanceSetVgpuHeterogeneousMode."""
        card = self.card_of_instance(handle)
        with self.change() as state:
            modes.set_mixed_sizes(state, card, self.instance(state, handle), enabled=bool(mode))
        return 0

    def _create(self, device: DeviceHandle, profile_id: int, start: int | None) -> InstanceHandle:
        card, _ = self._profile(device, profile_id)
        with self.change() as state:
            instance: GpuInstance = modes.create_instance(state, card, profile_id, start)
        return InstanceHandle(card.number, instance.id)

    def _profile(self, device: DeviceHandle, profile_id: int) -> tuple[CardShape, MigProfile]:
        """A profile of a card that is in MIG mode."""
        card = self.card(device)
        if not self.state.mig_mode(card)[0]:
            raise NvmlError(_NOT_SUPPORTED)
        profile = _mig(card).profile(int(profile_id))
        if profile is None:
            raise NvmlError(_INVALID_ARGUMENT)
        return card, profile


def _mig(card: CardShape) -> Mig:
    if card.mig is None:
        raise NvmlError(_NOT_SUPPORTED)
    return card.mig


def _profile_info(profile: MigProfile, *, with_name: bool) -> SimpleNamespace:
    multiprocessors, copy, decoders, encoders, jpeg, ofa = profile.engines
    info = SimpleNamespace(
        id=profile.profile_id,
        isP2pSupported=0,
        sliceCount=profile.slices,
        instanceCount=profile.max_count,
        multiprocessorCount=multiprocessors,
        copyEngineCount=copy,
        decoderCount=decoders,
        encoderCount=encoders,
        jpegCount=jpeg,
        ofaCount=ofa,
        memorySizeMB=profile.memory_mib,
    )
    if with_name:
        info.name = profile.name
    return info


def _compute_info(profile: MigProfile, part: ComputeProfile, *, with_name: bool) -> SimpleNamespace:
    multiprocessors, copy, decoders, encoders, jpeg, ofa = profile.engines
    info = SimpleNamespace(
        id=part.profile_id,
        sliceCount=part.slices,
        instanceCount=part.max_count,
        multiprocessorCount=multiprocessors * part.slices // profile.slices,
        sharedCopyEngineCount=copy,
        sharedDecoderCount=decoders,
        sharedEncoderCount=encoders,
        sharedJpegCount=jpeg,
        sharedOfaCount=ofa,
    )
    if with_name:
        info.name = profile.name if part.slices == profile.slices else f"{part.slices}c.{profile.name}"
    return info


def _of(reference: Any) -> Any:
    """The target of `ctypes.byref`; any other argument itself."""
    return getattr(reference, "_obj", reference)


def _value(reference: Any) -> int:
    return int(_of(reference).value)
