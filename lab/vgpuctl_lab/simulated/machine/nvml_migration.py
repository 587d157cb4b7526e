# SPDX-License-Identifier: Apache-2.0
"""The simulated NVML's functions of moves: metadata of vGPUs and GPUs, their comparison, and what a move carries."""

import struct
from types import SimpleNamespace
from typing import Any

from vgpuctl_lab.simulated.machine.nvml_session import DeviceHandle
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, MIB, NvmlError
from vgpuctl_lab.simulated.machine.nvml_vgpu_readings import VgpuReadingFunctions
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import Vgpu

_NOT_SUPPORTED = CONSTANTS["NVML_ERROR_NOT_SUPPORTED"]
_INVALID_ARGUMENT = CONSTANTS["NVML_ERROR_INVALID_ARGUMENT"]
_CAN_MIGRATE = 0x1
_OPAQUE_SIZE = 64
# nvmlVgpuMetadata_t and nvmlVgpuPgpuMetadata_t, with their opaque part.
_VGPU = struct.Struct(f"<3I80s80s24x3I{_OPAQUE_SIZE}s")
_GPU = struct.Struct(f"<2I80sI20x3I{_OPAQUE_SIZE}s")
_BUFFER_MB_S = 12_000
_FRACTIONAL, _MIXED_TYPES, _MIXED_SIZES, _READ_MB_S, _WRITE_MB_S, _CAPABILITY_COUNT = 0, 1, 2, 3, 4, 12
_COLD, _ALL_WAYS = 0x1, 0xF
_HOST_DRIVER, _GUEST_DRIVER, _OTHER_GPU = 0x1, 0x2, 0x4
_VERSIONS = {
    535: (0x70001, 0x120001),
    550: (0x70001, 0x140001),
    555: (0x70001, 0x150001),
    560: (0x70001, 0x160001),
    565: (0x70001, 0x170001),
    570: (0x120001, 0x180002),
    575: (0x70001, 0x190001),
    580: (0x120001, 0x1A0001),
    590: (0x180001, 0x1B0001),
    595: (0x180001, 0x1C0001),
}
"""The lowest and the highest version of each driver branch, as major << 16 | minor.

As vgpuctl/catalog/vgpu_versions.py, which agents of simulated hosts cannot import; an unknown lowest one is 7.1.
"""


class MigrationFunctions(VgpuReadingFunctions):
    """Moves of the vGPUs of the machine's cards."""

    def device_get_vgpu_metadata(self, device: DeviceHandle) -> bytes:
        """nvmlDeviceGetVgpuMetadata."""
        card, driver = self._sharing(device), self.machine.shape.nvidia_driver
        caps = self._caps(card)
        return _GPU.pack(1, 1, driver.encode(), caps, *_versions_of(driver), _OPAQUE_SIZE, card.device.encode())

    def vgpu_instance_get_metadata(self, number: int) -> bytes:
        """nvmlVgpuInstanceGetMetadata."""
        vgpu, host = self.running(number), self.machine.shape.nvidia_driver
        card = self._card_of(vgpu)
        guest = self.vgpu_instance_get_vm_driver_version(number)
        version = min(_versions_of(guest)[1], _versions_of(host)[1])
        return _VGPU.pack(
            1, 1, 1, guest.encode(), host.encode(), self._caps(card), version, _OPAQUE_SIZE, card.device.encode()
        )

    def get_vgpu_compatibility(self, vgpu: Any, gpu: Any) -> tuple[int, int]:
        """nvmlGetVgpuCompatibility: not of capacity, and not of ECC."""
        if len(bytes(vgpu)) != _VGPU.size or len(bytes(gpu)) != _GPU.size:
            raise NvmlError(_INVALID_ARGUMENT)
        version, _size, device = _VGPU.unpack(bytes(vgpu))[-3:]
        lowest, highest, _size, other = _GPU.unpack(bytes(gpu))[-4:]
        ways, limits = (_ALL_WAYS, 0) if device == other else (_COLD, _OTHER_GPU)
        if version > highest:
            return ways & _COLD, limits | _HOST_DRIVER
        if version < lowest:
            return 0, limits | _GUEST_DRIVER
        return ways, limits

    def device_get_pgpu_metadata_string(self, device: DeviceHandle) -> bytes:
        """nvmlDeviceGetPgpuMetadataString."""
        return f"{self._sharing(device).device}-{self.machine.shape.nvidia_driver}".encode() + b"\0"

    def get_vgpu_version(self) -> list[tuple[int, int]]:
        """nvmlGetVgpuVersion: supported and current."""
        return [_versions_of(self.machine.shape.nvidia_driver)] * 2

    def vgpu_instance_get_runtime_state_size(self, number: int) -> SimpleNamespace:
        """nvmlVgpuInstanceGetRuntimeStateSize: of the fault `move-state`, else the framebuffer of the type."""
        vgpu = self.running(number)
        mib = self.state.fault(self._card_of(vgpu), "move-state") or self.type(vgpu.type_id).framebuffer_mib
        return SimpleNamespace(size=mib * MIB)

    def device_get_vgpu_capabilities(self, device: DeviceHandle, capability: int) -> int:
        """nvmlDeviceGetVgpuCapabilities."""
        if not 0 <= capability < _CAPABILITY_COUNT:
            raise NvmlError(_INVALID_ARGUMENT)
        card = self._sharing(device)
        if capability in (_READ_MB_S, _WRITE_MB_S):
            return _BUFFER_MB_S
        if capability == _MIXED_SIZES:
            return int(card.mixes_sizes)
        return int(capability in (_FRACTIONAL, _MIXED_TYPES))

    def device_get_gsp_firmware_mode(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetGspFirmwareMode: in use on Hopper, and from Ada on."""
        number = int(self.card(device).device, 16)
        return [int(number >> 8 == 0x23 or number >= 0x2600)] * 2

    def _caps(self, card: CardShape) -> int:
        return 0 if self.state.fault(card, "move-unsupported") else _CAN_MIGRATE

    def _card_of(self, vgpu: Vgpu) -> CardShape:
        return next(one for one in self.machine.shape.cards if one.address == vgpu.card)

    def _sharing(self, device: DeviceHandle) -> CardShape:
        card = self.card(device)
        if not card.types:
            raise NvmlError(_NOT_SUPPORTED)
        return card


def answer_pointer(answer: object, arguments: tuple[Any, ...]) -> int:
    """Write a function's answer where the C function's arguments after its subjects point at. Returns NVML's code."""
    if not isinstance(answer, bytes):
        target = arguments[-1]._obj
        if isinstance(answer, tuple):
            target[:] = answer
        else:
            target.value = answer
        return CONSTANTS["NVML_SUCCESS"]
    buffer, size = arguments
    room, size._obj.value = size._obj.value, len(answer)
    if buffer is None or room < len(answer):
        return CONSTANTS["NVML_ERROR_INSUFFICIENT_SIZE"]
    buffer[: len(answer)] = answer
    return CONSTANTS["NVML_SUCCESS"]


def _versions_of(driver: str) -> tuple[int, int]:
    """The versions that a driver negotiates; a branch that is not known has those of the one before."""
    branch = int(driver.partition(".")[0])
    return _VERSIONS[max((one for one in _VERSIONS if one <= branch), default=min(_VERSIONS))]
