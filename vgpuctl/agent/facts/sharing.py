# SPDX-License-Identifier: Apache-2.0
"""The sharing kind that a GPU stands ready for, and the vGPUs on it: each question is asked of all kinds here."""

from collections import Counter
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from vgpuctl.agent.facts import mdev, pci, sriov, vf_profile, vgpu_types
from vgpuctl.agent.facts.vgpu_types import Description
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.facts import Mdev, VgpuType, VirtualFunction
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.agent.wire.values import dataclass

Note = Callable[[str], None]
"""Takes a sentence about a part that could not be read."""


@dataclass(frozen=True)
class FoundVgpu:
    """One vGPU of a GPU. uuid: of an mdev, None where the VF itself carries the type. folder: of its device."""

    function: str
    type_id: str
    uuid: Optional[str]
    folder: str

    def __str__(self) -> str:
        return f"a vGPU of type {self.type_id}" if self.uuid is None else f"the mediated device {self.uuid}"


def read_type_of_function(host: Host, function: str) -> Optional[str]:
    """Return the type of the vGPU that a VF itself carries, None for a VF without one. Raises Problem."""
    return vf_profile.read_set(host, function) if vf_profile.is_offered(host, function) else None


def read_type_names(host: Host, function: str) -> Dict[str, str]:
    """Return {type id: name as the driver prints it} of what the driver offers on a function now.

    Of a VF that carries a type itself, or whose card is full, it names nothing. Raises Problem.
    """
    if vf_profile.is_offered(host, function):
        return vf_profile.read_creatable(host, function)
    return mdev.read_names(host, function)


def read_offered(
    host: Host,
    address: str,
    vendor_id: str,
    vfs: Sequence[VirtualFunction],
    mdevs: Sequence[Mdev],
    described: Dict[str, Description],
    memory_mib: Optional[int],
    rooms: Mapping[str, int],
    note: Note,
) -> Tuple[Tuple[str, ...], List[VgpuType]]:
    """Probe how a GPU can be shared now, in the order of the reference's first table, and with what types.

    described, memory_mib, rooms: what NVML and vgpuConfig.xml say of its types. MIG-backed types that need an instance
    which the GPU does not have are left out. Raises Problem.
    """
    of_vfs = Counter(vf.current_type for vf in vfs if vf.current_type is not None)
    of_mdevs = Counter(device.type_id for device in mdevs)
    if any(vf_profile.is_offered(host, vf.address) for vf in vfs):
        types = vf_profile.read_types(host, vfs, of_vfs, described, memory_mib, rooms, note)
        return (str(Sharing.VF_PROFILE),), vgpu_types.without_absent_mig(types, of_vfs)
    if any(mdev.offers_types(host, vf.address) for vf in vfs):
        types = vgpu_types.read_mdev_vf_types(host, vfs, of_mdevs, described.get, memory_mib, rooms, note)
        return (str(Sharing.MDEV_VF),), vgpu_types.without_absent_mig(types, of_mdevs)
    if mdev.offers_types(host, address):
        types = vgpu_types.read_mdev_types(host, address, described.get, note)
        return (str(Sharing.MDEV),), vgpu_types.without_absent_mig(types, of_mdevs)
    return ((str(Sharing.VF),) if vfs and vendor_id != pci.NVIDIA else ()), []


def read_vf(host: Host, function: str) -> Tuple[Optional[str], bool]:
    """Read the type of the vGPU that a VF carries itself, without an mdev, and whether its driver offers types.

    Raises Problem.
    """
    if vf_profile.is_offered(host, function):
        return vf_profile.read_set(host, function), True
    return None, mdev.offers_types(host, function)


def offers_types(host: Host, function: str) -> bool:
    """Tell whether the driver offers vGPU types on a VF, by either kernel interface."""
    return vf_profile.is_offered(host, function) or mdev.offers_types(host, function)


def read_vgpus(host: Host, address: str) -> List[FoundVgpu]:
    """Read every vGPU of a GPU: types on VFs, by VF, then mediated devices, by UUID. Raises Problem."""
    functions = [vf for _, vf in sriov.read_functions(host, address)]
    found = []
    for function in functions:
        current = vf_profile.read_set(host, function) if vf_profile.is_offered(host, function) else None
        if current is not None:
            found.append(FoundVgpu(function, current, None, pci.folder(function)))
    for device in mdev.read_of(host, (address, *functions)):
        found.append(FoundVgpu(device.parent, device.type_id, device.uuid, f"{mdev.BUS}/{device.uuid}"))
    return found
