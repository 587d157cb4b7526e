# SPDX-License-Identifier: Apache-2.0
"""The place of a GPU in its host: the PCI bridges above it by sysfs, NVLinks and the NVSwitch fabric by NVML.

Each part degrades by itself. A card that a VM or vfio-pci has is not shown by NVML and keeps the bridges.
"""

import ctypes
import re
import uuid
from typing import Any, Callable, Dict, List, Optional, Tuple

from vgpuctl.agent.facts import pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml, text
from vgpuctl.agent.wire.bus_id import normalise_bus_id
from vgpuctl.agent.wire.facts import FabricFacts, GpuTopology, NvLinks
from vgpuctl.agent.wire.values import dataclass

_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_MOST_LINKS = 36
"""NVML_NVLINK_MAX_LINKS of the newest header; a board with fewer refuses the numbers above its own."""

_PEER_KINDS = {0: "gpu", 1: "processor", 2: "switch"}
# nvml.h, NVML_GPU_FABRIC_STATE_*
_STATES = {1: "not-started", 2: "in-progress", 3: "completed"}
# nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*: the shift of each part, which is 1 where it is so and 0 where nobody can tell.
_HEALTH_PARTS = (
    (0, "degraded bandwidth"),
    (2, "route recovery"),
    (4, "unhealthy route"),
    (6, "access timeout recovery"),
)
_CONFIGURATION_SHIFT, _CONFIGURATION_MASK, _CONFIGURATION_RIGHT = 8, 0xF, 1


@dataclass(frozen=True)
class NvmlTopology:
    """NVML's part of a GPU's place. nvlinks: None where the driver does not tell, empty on a board without."""

    nvlinks: Optional[Tuple[NvLinks, ...]] = None
    fabric: Optional[FabricFacts] = None
    module: Optional[int] = None


def read(host: Host, address: str, by_nvml: Optional[NvmlTopology]) -> GpuTopology:
    """Read the bridges above a GPU, and join them with what NVML told. Raises Problem."""
    root, bridges = read_bridges(host, address)
    told = by_nvml or NvmlTopology()
    return GpuTopology(root, bridges, told.nvlinks, told.fabric, told.module)


def read_bridges(host: Host, address: str) -> Tuple[Optional[str], Tuple[str, ...]]:
    """Return the root complex, `pci0000:40`, and the bridges from its root port down to the GPU.

    Both are folders of the function's real path (Linux drivers/pci/probe.c). The last root counts: a bridge of Intel's
    VMD has a root of its own below it.
    """
    names = (host.link(pci.folder(address)) or "").split("/")
    roots = [number for number, name in enumerate(names) if _ROOT.fullmatch(name)]
    if not roots:
        return None, ()
    return names[roots[-1]], tuple(name for name in names[roots[-1] + 1 : -1] if pci.is_address(name))


def read_by_nvml(nvml: Nvml, device: Any, note: Callable[[str], None]) -> NvmlTopology:
    """Ask NVML for the NVLinks, the fabric and the module; `note` gets a sentence for each part that is not told."""
    library = nvml.library
    return NvmlTopology(
        nvml.part(note, "its NVLinks", lambda: _read_links(nvml, device), None),
        nvml.part(note, "its NVSwitch fabric", lambda: _read_fabric(nvml, device), None),
        nvml.part(note, "its module", lambda: nvml.optional(library.nvmlDeviceGetModuleId, device), None),
    )


def _read_links(nvml: Nvml, device: Any) -> Optional[Tuple[NvLinks, ...]]:
    """Return the links by peer, in the order of their numbers."""
    library = nvml.library
    found: Dict[Tuple[Optional[str], Optional[str], Optional[int], bool], List[int]] = {}
    for number in range(_MOST_LINKS):
        try:
            is_active = bool(library.nvmlDeviceGetNvLinkState(device, number))
        except library.NVMLError as error:
            if error.value == library.NVML_ERROR_FUNCTION_NOT_FOUND:
                return None
            # A board without NVLink, or without a link of this number.
            if error.value in (library.NVML_ERROR_NOT_SUPPORTED, library.NVML_ERROR_INVALID_ARGUMENT):
                break
            raise
        peer = _read_peer(nvml, device, number) if is_active else (None, None)
        version = nvml.if_possible(lambda: library.nvmlDeviceGetNvLinkVersion(device, number))  # noqa: B023 - called at once
        found.setdefault((*peer, version, is_active), []).append(number)
    return tuple(
        NvLinks(tuple(numbers), is_active, address, kind, version)
        for (address, kind, version, is_active), numbers in found.items()
    )


def _read_peer(nvml: Nvml, device: Any, number: int) -> Tuple[Optional[str], Optional[str]]:
    """Return the address and the kind of what is at the other end, each None where the driver does not tell it."""
    library = nvml.library
    kind = nvml.if_possible(lambda: library.nvmlDeviceGetNvLinkRemoteDeviceType(device, number))
    remote = nvml.if_possible(lambda: library.nvmlDeviceGetNvLinkRemotePciInfo(device, number))
    address = None if remote is None else normalise_bus_id(text(remote.busId) or "")
    return (address if address and pci.is_address(address) else None), _PEER_KINDS.get(-1 if kind is None else kind)


def _read_fabric(nvml: Nvml, device: Any) -> Optional[FabricFacts]:
    library = nvml.library
    info = library.c_nvmlGpuFabricInfo_v2_t()
    if nvml.optional(library.nvmlDeviceGetGpuFabricInfoV, device, ctypes.byref(info)) is None:
        # Drivers before R545 have no health mask.
        info = library.c_nvmlGpuFabricInfo_t()
        if nvml.optional(library.nvmlDeviceGetGpuFabricInfo, device, ctypes.byref(info)) is None:
            return None
    # One byte in the header, where pynvml has a word.
    state = _STATES.get(int(info.state) & 0xFF)
    if state is None:
        return None
    status = int(info.status) if state == "completed" else 0
    is_set_up = state == "completed" and status == 0
    return FabricFacts(
        state,
        str(uuid.UUID(bytes=bytes(info.clusterUuid))) if is_set_up else None,
        int(info.cliqueId) if is_set_up else None,
        _faults(int(getattr(info, "healthMask", 0))),
        status,
    )


def _faults(mask: int) -> Tuple[str, ...]:
    """Return what the health mask calls bad."""
    found = [name for shift, name in _HEALTH_PARTS if mask >> shift & 3 == 1]
    if mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_MASK > _CONFIGURATION_RIGHT:
        found.append("incorrect configuration")
    return tuple(found)
