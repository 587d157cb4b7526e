# SPDX-License-Identifier: Apache-2.0
"""The NVML of a simulated host: pynvml's functions by their names, answered from the machine's state (reference 5.4).

`nvmlDeviceGetMigMode` is the method `device_get_mig_mode`, and so on; what is not here is Function Not Found.
"""

import re
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

from vgpuctl_lab.simulated.machine.nvml_gpm import GpmFunctions
from vgpuctl_lab.simulated.machine.nvml_mig import MigFunctions
from vgpuctl_lab.simulated.machine.nvml_migration import MigrationFunctions, answer_pointer
from vgpuctl_lab.simulated.machine.nvml_readings import ReadingFunctions
from vgpuctl_lab.simulated.machine.nvml_session import DeviceHandle, MigDeviceHandle
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, MIB, NO_INSTANCE, STRUCTS, NvmlError
from vgpuctl_lab.simulated.machine.readings import retired_pages
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import MachineFolder
from vgpuctl_lab.simulated.machine.tree import vbios_version

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VERSION = re.compile(r"_v\d$")
_FUNCTION_NOT_FOUND = 13
CODES = "/etc/vgpulab/nvml_codes"


class SimulatedNvml(GpmFunctions, MigFunctions, MigrationFunctions, ReadingFunctions):
    """One process's NVML. Errors are `NVMLError` with NVML's codes."""

    def __getattr__(self, name: str) -> Any:
        """Return a constant, a struct or a function by pynvml's name for it."""
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in STRUCTS:
            return STRUCTS[name]
        if name == "_nvmlGetFunctionPointer":
            return self._function_pointer
        if not name.startswith("nvml"):
            raise AttributeError(name)
        code = self.injected.get(_VERSION.sub("", name))
        if code is not None:
            return partial(_refuse, code)
        method = _CAPITAL.sub("_", name.removeprefix("nvml")).lower()
        try:
            return object.__getattribute__(self, method)
        except AttributeError:
            return partial(_refuse, _FUNCTION_NOT_FOUND)

    def _function_pointer(self, name: str) -> Callable[..., int]:
        """The C function below a method: it takes the method's arguments, then where the answer goes."""

        def call(*arguments: Any) -> int:
            count = 2 if name == "nvmlGetVgpuCompatibility" else 1
            try:
                return answer_pointer(getattr(self, name)(*arguments[:count]), arguments[count:])
            except NvmlError as error:
                return error.value

        return call

    # The library

    def init(self) -> None:
        """nvmlInit: it also loads the driver's module when no card is on it."""
        if not self.has_driver():
            raise NvmlError(CONSTANTS["NVML_ERROR_DRIVER_NOT_LOADED"])
        self.is_open = True
        self.injected = read_injected(self.machine)
        self.note_opened()

    def shutdown(self) -> None:
        """nvmlShutdown."""
        self.is_open = False

    def system_get_driver_version(self) -> str:
        """nvmlSystemGetDriverVersion."""
        return self.machine.shape.nvidia_driver

    def system_get_nvml_version(self) -> str:
        """nvmlSystemGetNVMLVersion: CUDA's major version before the driver's."""
        return f"13.{self.machine.shape.nvidia_driver}"

    # The cards

    def device_get_count(self) -> int:
        """nvmlDeviceGetCount."""
        return len(self.cards())

    def device_get_handle_by_index(self, index: int) -> DeviceHandle:
        """nvmlDeviceGetHandleByIndex, in the order of addresses."""
        cards = self.cards()
        if not 0 <= index < len(cards):
            raise NvmlError(CONSTANTS["NVML_ERROR_INVALID_ARGUMENT"])
        return self.handle(cards[index])

    def device_get_handle_by_pci_bus_id(self, bus_id: str) -> DeviceHandle:
        """nvmlDeviceGetHandleByPciBusId, with four or eight digits of domain."""
        domain, colon, rest = bus_id.lower().partition(":")
        for card in self.cards():
            if colon and f"{int(domain, 16):04x}:{rest}" == card.address:
                return self.handle(card)
        raise NvmlError(CONSTANTS["NVML_ERROR_NOT_FOUND"])

    def device_get_pci_info(self, device: DeviceHandle) -> SimpleNamespace:
        """nvmlDeviceGetPciInfo."""
        card = self.card(device)
        domain, bus, rest = card.address.split(":")
        identity = int(card.device + card.vendor, 16)
        vendor, subsystem = card.subsystem.split(":")
        return SimpleNamespace(
            domain=int(domain, 16),
            bus=int(bus, 16),
            device=int(rest.split(".")[0], 16),
            pciDeviceId=identity,
            pciSubSystemId=int(subsystem + vendor, 16),
            busId=f"0000{card.address.upper()}",
        )

    def device_get_name(self, device: DeviceHandle) -> str:
        """nvmlDeviceGetName."""
        return self.card(device).model

    def device_get_uuid(self, device: DeviceHandle) -> str:
        """nvmlDeviceGetUUID."""
        return self.card(device).uuid

    def device_get_minor_number(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetMinorNumber: N of /dev/nvidiaN."""
        return self.card(device).number

    def device_get_memory_info(self, device: DeviceHandle) -> SimpleNamespace:
        """nvmlDeviceGetMemoryInfo: framebuffer is handed out when a VM starts, not when its vGPU is created."""
        card = self.card(device)
        if isinstance(device, MigDeviceHandle):
            return self._memory_of_instance(card, device.instance)
        total = (card.reported_mib or card.memory_mib) * MIB
        reserved = total // 128 // MIB * MIB
        running = [vgpu for vgpu in self.state.vgpus_of(card) if self.state.holder_of(vgpu) is not None]
        known = [card.type_of(vgpu.type_id) for vgpu in running]
        used = min(sum(each.framebuffer_mib for each in known if each) * MIB + reserved, total)
        return SimpleNamespace(total=total, free=total - used, used=used)

    def _memory_of_instance(self, card: CardShape, number: int) -> SimpleNamespace:
        """The memory of a GPU instance, which its compute instances share."""
        for one in self.state.instances_of(card):
            profile = card.mig.profile(one.profile_id) if card.mig else None
            if one.id == number and profile is not None:
                total = profile.memory_mib * MIB
                told = self.sensors().of_instance(one, "framebuffer_used_bytes")
                used = len(one.pids) * total // 8 if told is None else min(round(told), total)
                return SimpleNamespace(total=total, free=total - used, used=used)
        raise NvmlError(CONSTANTS["NVML_ERROR_NOT_FOUND"])

    def device_get_vbios_version(self, device: DeviceHandle) -> str:
        """nvmlDeviceGetVbiosVersion."""
        return vbios_version(self.state, self.card(device))

    def device_get_retired_pages(self, device: DeviceHandle, cause: int) -> list[int]:
        """nvmlDeviceGetRetiredPages: their addresses, before Ampere; those of the fault are of two bits."""
        pages = self.had(retired_pages(self.state, self.card(device)))
        return [page << 16 for page in range(pages)] if cause else []

    def device_get_retired_pages_pending_status(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetRetiredPagesPendingStatus."""
        return int(bool(self.had(retired_pages(self.state, self.card(device)))))

    def device_get_compute_running_processes_v3(self, device: DeviceHandle) -> list[SimpleNamespace]:
        """nvmlDeviceGetComputeRunningProcesses_v3, of a card in MIG mode with the instance of each."""
        card = self.card(device)
        found = [(process.pid, NO_INSTANCE) for process in self.state.running() if process.card == card.address]
        found += [(pid, one.id) for one in self.state.instances_of(card) for pid in one.pids]
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=0, gpuInstanceId=number, computeInstanceId=NO_INSTANCE)
            for pid, number in found
        ]


def read_injected(machine: MachineFolder) -> dict[str, int]:
    """Codes that functions must return: lines `nvmlDeviceGetMemoryInfo 999` of a file on the disk."""
    try:
        lines = (machine.root / CODES.lstrip("/")).read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {_VERSION.sub("", name): int(code) for name, code in (line.split() for line in lines)}


def _refuse(code: int, *_arguments: object) -> NoReturn:
    raise NvmlError(code)
