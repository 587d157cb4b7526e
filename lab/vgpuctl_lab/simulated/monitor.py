# SPDX-License-Identifier: Apache-2.0
"""Answers of a simulated QEMU's monitor."""

import json
from xml.etree import ElementTree

from vgpuctl_lab.simulated.libvirt_xml import function_of
from vgpuctl_lab.simulated.machine.state import MachineFolder


def query_pci(machine: MachineFolder, xml: str) -> str:
    """The answer of `query-pci` about a running domain's host devices."""
    devices = []
    for hostdev in ElementTree.fromstring(xml).iterfind("devices/hostdev[@mode='subsystem']"):
        source, guest, alias = hostdev.find("source/address"), hostdev.find("address"), hostdev.find("alias")
        if source is None or guest is None:
            continue
        vgpu = machine.state().mdev(source.get("uuid", "").lower())
        function = vgpu.function if vgpu is not None else function_of(source)
        vendor, device, pci_class = _identity(machine, function)
        devices.append(
            {
                "bus": int(guest.get("bus", "0"), 0),
                "slot": int(guest.get("slot", "0"), 0),
                "function": int(guest.get("function", "0"), 0),
                "id": {"vendor": vendor, "device": device},
                "class_info": {"class": pci_class},
                "qdev_id": "" if alias is None else alias.get("name", ""),
                "regions": [],
            }
        )
    return json.dumps({"return": [{"bus": 0, "devices": devices}]})


def _identity(machine: MachineFolder, function: str) -> tuple[int, int, int]:
    state = machine.state()
    for card in machine.shape.cards:
        for companion in card.companions:
            if companion.address == function:
                return int(companion.vendor, 16), int(companion.device, 16), int(companion.pci_class[:4], 16)
        if function == card.address or function in state.vfs_of(card):
            device = card.device if function == card.address else card.vf_device
            return int(card.vendor, 16), int(device, 16), int(card.pci_class[:4], 16)
    return 0, 0, 0
