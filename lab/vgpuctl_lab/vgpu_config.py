# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's `vgpuConfig.xml` for the cards of an emulated host (reference 3.5): what the vGPU host package installs."""

from xml.etree import ElementTree

from vgpuctl_lab.boards import CLASSES, full_name, vgpu_types
from vgpuctl_lab.cards import HostShape


def vgpu_config(shape: HostShape) -> str:
    """The file for the boards of `shape`; sizes, ids and maxima from the catalogue."""
    root = ElementTree.Element("vgpuconfig")
    ElementTree.SubElement(root, "version").text = "1.1"
    boards = {card.board.key: card.board for card in shape.cards if vgpu_types(card.board)}
    for board in boards.values():
        for entry, type_id in vgpu_types(board):
            identity = {"id": str(type_id), "name": full_name(entry), "class": CLASSES[entry.series]}
            described = ElementTree.SubElement(root, "vgpuType", identity)
            ElementTree.SubElement(described, "profileSize").text = hex(entry.fb_mib << 20)
            ElementTree.SubElement(described, "framebuffer").text = hex((entry.guest_fb_mib or entry.fb_mib) << 20)
            ElementTree.SubElement(described, "numHeads").text = str(entry.max_displays)
    for board in boards.values():
        vendor, device = board.pci.split(":")
        supported = ElementTree.SubElement(root, "pgpu")
        ElementTree.SubElement(
            supported, "devId", vendorId=f"0x{vendor}", deviceId=f"0x{device}", subsystemVendorId="0x10de",
            subsystemId="0x0",
        )  # fmt: skip
        for entry, type_id in vgpu_types(board):
            one = ElementTree.SubElement(supported, "supportedVgpu", vgpuId=str(type_id))
            ElementTree.SubElement(one, "maxVgpus").text = str(entry.max_instances)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
