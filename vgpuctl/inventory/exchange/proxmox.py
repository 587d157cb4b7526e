# SPDX-License-Identifier: Apache-2.0
"""Proxmox VE: resource mappings of a cluster (/etc/pve/mapping/pci.cfg), and the hostpci lines of VMs.

Sources: pve-guest-common, src/PVE/Mapping/PCI.pm; qemu-server, src/PVE/QemuServer/PCI.pm and PCI/Mdev.pm, which sets a
vGPU type on a VF by the same key `mdev` as it makes a mediated device.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.inventory.exchange.handed_out import HandedOut, ToolFile, slug
from vgpuctl.sharing.kind import HandedAs

_NODE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?")
_PREFIXES: Mapping[HandedAs, str] = {
    HandedAs.CARD: "gpu",
    HandedAs.MDEV: "vgpu",
    HandedAs.TYPED_VF: "vgpu",
    HandedAs.PLAIN_VF: "vf",
}
_BY_TYPE = (HandedAs.MDEV, HandedAs.TYPED_VF)


@dataclass
class _Mapping:
    """One mapping: devices of one model and one form on several nodes. types: name by mdev type."""

    has_types: bool
    devices: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)


def export_proxmox(devices: Sequence[HandedOut], remarks: list[str]) -> list[ToolFile]:
    """Write the mappings of all hosts, and example lines. Limits of Proxmox go to `remarks`."""
    mappings: dict[str, _Mapping] = {}
    for one in devices:
        if one.device_id is None:
            remarks.append(f"{one.title}: the PCI id of its VFs was not read; it is left out: run `vgpuctl list-gpus`")
            continue
        if not _NODE.fullmatch(_node(one)):
            remarks.append(f"{one.title}: {_node(one)!a} is no name of a node; it is left out")
            continue
        name = f"{_PREFIXES[one.how]}-{slug(one.model, '-').lower()}"
        mapping = mappings.setdefault(name, _Mapping(one.how in _BY_TYPE))
        mapping.devices += _lines(one)
        mapping.types.update({kind.mdev_type: kind.name for kind in one.types})
        if one.how is HandedAs.TYPED_VF and one.carried:
            remarks.append(
                f"{one.title}: Proxmox sets vGPU types itself when VMs start; take `shares` out of the layout, "
                f"{len(one.carried)} VFs carry a type now"
            )
    if not mappings:
        return []
    about = (
        "Mappings for /etc/pve/mapping/pci.cfg of the cluster, or for `pvesh create /cluster/mapping/pci`.",
        "That file takes no comments: paste what follows them.",
    )
    sections = "\n".join(_section(name, one) for name, one in mappings.items())
    of_vms = (
        "One line for each device of a VM, in /etc/pve/qemu-server/VMID.conf: hostpci0, hostpci1 and so on.",
        "`pcie=1` needs `machine: q35`.",
    )
    lines = "".join(f"{line}\n" for name, one in mappings.items() for line in _hostpci(name, one))
    return [ToolFile("proxmox/pci.cfg", about, sections), ToolFile("proxmox/hostpci.txt", of_vms, lines)]


def _node(one: HandedOut) -> str:
    """Proxmox calls a node by its short host name."""
    return one.hostname.partition(".")[0]


def _lines(one: HandedOut) -> list[str]:
    """The property strings of one GPU. A card of several functions is named without one, and goes as a whole."""
    groups: dict[str, int | None] = {vf.address: vf.iommu_group for vf in one.gpu.vfs} | {
        one.gpu.address: one.gpu.iommu_group
    }
    found = []
    for function in one.functions:
        is_whole = one.how is HandedAs.CARD and bool(one.gpu.companions)
        values = {
            "id": f"{one.gpu.vendor_id}:{one.device_id}",
            "iommugroup": groups.get(function),
            "node": _node(one),
            "path": function.rpartition(".")[0] if is_whole else function,
            "subsystem-id": one.subsystem_id,
        }
        found.append(",".join(f"{key}={value}" for key, value in values.items() if value is not None))
    return found


def _section(name: str, one: _Mapping) -> str:
    lines = [*(f"map {device}" for device in one.devices), *(["mdev 1"] if one.has_types else [])]
    return f"{name}\n" + "".join(f"\t{line}\n" for line in lines)


def _hostpci(name: str, one: _Mapping) -> list[str]:
    if not one.has_types:
        return [f"hostpci0: mapping={name},pcie=1"]
    lines = []
    for kind, profile in one.types.items():
        lines += [f"# {profile}", f"hostpci0: mapping={name},mdev={kind},pcie=1"]
    return lines
