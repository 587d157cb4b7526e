# SPDX-License-Identifier: Apache-2.0
"""The simulated NVML's NVLinks, fabric and modules: what joins the cards of a host."""

from types import SimpleNamespace
from typing import Any

from vgpuctl_lab.simulated.machine import fabric_manager
from vgpuctl_lab.simulated.machine.nvml_session import DeviceHandle, Session
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, NvmlError
from vgpuctl_lab.simulated.machine.shape import CardShape

_INVALID_ARGUMENT = CONSTANTS["NVML_ERROR_INVALID_ARGUMENT"]
_GPU, _SWITCH = 0, 2
_ERROR_COUNTERS = ("replay", "recovery", "crc-flit", "crc-data", "ecc-data")
"""The labels of the measure `nvlink_errors`, by NVML's number."""


class LinkFunctions(Session):
    """NVLinks of the machine's cards."""

    def device_get_nv_link_state(self, device: DeviceHandle, link: int) -> int:
        """nvmlDeviceGetNvLinkState: none is active that failed, or whose peer fell off the bus."""
        return int(self.is_active(self._with_link(device, link), link))

    def device_get_nv_link_version(self, device: DeviceHandle, link: int) -> int:
        """nvmlDeviceGetNvLinkVersion."""
        return self._with_link(device, link).links.version

    def device_get_nv_link_remote_device_type(self, device: DeviceHandle, link: int) -> int:
        """nvmlDeviceGetNvLinkRemoteDeviceType."""
        return _SWITCH if self._with_link(device, link).links.has_switch else _GPU

    def device_get_nv_link_remote_pci_info(self, device: DeviceHandle, link: int) -> SimpleNamespace:
        """nvmlDeviceGetNvLinkRemotePciInfo."""
        return SimpleNamespace(busId=f"0000{self._with_link(device, link).links.peer(link).upper()}")

    def device_get_nv_link_error_counter(self, device: DeviceHandle, link: int, counter: int) -> int:
        """nvmlDeviceGetNvLinkErrorCounter: those of a scenario are all on the first link."""
        card = self._with_link(device, link)
        if not 0 <= counter < len(_ERROR_COUNTERS):
            raise NvmlError(_INVALID_ARGUMENT)
        return 0 if link else int(self.sensors().labels_of_gpu(card, "nvlink_errors").get(_ERROR_COUNTERS[counter], 0))

    def device_get_module_id(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetModuleId: the card's place on its baseboard."""
        return self.had(self.card(device).links.module or None)

    def device_get_gpu_fabric_info(self, device: DeviceHandle, info: Any) -> int:
        """nvmlDeviceGetGpuFabricInfo: from Hopper on. A host of its own has the cluster of all zeros.

        A scenario plays NVML's numbers of the state and of how the set-up ended.
        """
        card = self.card(device)
        self.had(card.links.has_fabric or None)
        state, status = (self.sensors().of_gpu(card, f"fabric_{part}") for part in ("state", "status"))
        told = fabric_manager.fabric_state(self.state, card) if state is None else state
        info._obj.state = int(told)
        info._obj.status = int(status or 0)
        return 0

    def device_get_gpu_fabric_info_v(self, device: DeviceHandle, info: Any) -> int:
        """nvmlDeviceGetGpuFabricInfoV."""
        return self.device_get_gpu_fabric_info(device, info)

    def is_active(self, card: CardShape, link: int) -> bool:
        """True if a link is up; a scenario may play how many are."""
        played = self.sensors().of_gpu(card, "nvlink_active_links")
        if (played is not None and link >= played) or link < self.state.fault(card, fabric_manager.FAILED_LINKS):
            return False
        peer = next((one for one in self.machine.shape.cards if one.address == card.links.peer(link)), None)
        return peer is None or not self.state.fault(peer, "fallen")

    def link_bytes(self, card: CardShape, direction: str) -> int | None:
        """The bytes over all links of a card, None without links."""
        return int(self.sensors().labels_of_gpu(card, "nvlink_bytes").get(direction, 0)) if card.links.count else None

    def _with_link(self, device: DeviceHandle, link: int) -> CardShape:
        card = self.card(device)
        self.had(card.links.count or None)
        if not 0 <= link < card.links.count:
            raise NvmlError(_INVALID_ARGUMENT)
        return card
