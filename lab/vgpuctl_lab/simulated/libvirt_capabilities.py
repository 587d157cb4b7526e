# SPDX-License-Identifier: Apache-2.0
"""What libvirt of a simulated host says of its processor and of the machine types of its QEMU.

The test driver tells of a host of its own, with neither.
"""

import re
from xml.etree import ElementTree

from vgpuctl_lab.simulated.libvirt_wire import Packet, text
from vgpuctl_lab.simulated.machine.state import MachineFolder

_VERSION = re.compile(r"(\d+)\.(\d+)")
_FIRST = (4, 0)
_MINORS = 3
_MODEL = ("AMD", "EPYC-Milan", "0xa0011d5", 48)
_FEATURES = ("invpcid", "pdpe1gb", "topoext", "vaes")


async def say_capabilities(machine: MachineFolder, packet: Packet) -> Packet:
    """Answer CONNECT_GET_CAPABILITIES."""
    return packet.reply(text(capabilities(machine.shape.versions.get("qemu-system-x86_64", ""))))


def capabilities(qemu: str) -> str:
    """The XML of virConnectGetCapabilities. qemu: the line of `--version`."""
    root = ElementTree.Element("capabilities")
    vendor, model, microcode, bits = _MODEL
    cpu = ElementTree.SubElement(ElementTree.SubElement(root, "host"), "cpu")
    for name, value in (("arch", "x86_64"), ("model", model), ("vendor", vendor)):
        ElementTree.SubElement(cpu, name).text = value
    ElementTree.SubElement(cpu, "microcode", version=microcode)
    ElementTree.SubElement(cpu, "maxphysaddr", mode="emulate", bits=str(bits))
    for name in _FEATURES:
        ElementTree.SubElement(cpu, "feature", name=name)
    guest = ElementTree.SubElement(root, "guest")
    ElementTree.SubElement(guest, "os_type").text = "hvm"
    arch = ElementTree.SubElement(guest, "arch", name="x86_64")
    machines = _machines(qemu)
    for name in machines:
        ElementTree.SubElement(arch, "machine", maxCpus="288").text = name
    ElementTree.SubElement(arch, "machine", canonical=machines[-1], maxCpus="288").text = "q35"
    for kind in ("qemu", "kvm"):
        ElementTree.SubElement(arch, "domain", type=kind)
    return ElementTree.tostring(root, encoding="unicode")


def _machines(qemu: str) -> list[str]:
    """Machine types of a version and those before, which QEMU keeps: three a year."""
    match = _VERSION.search(qemu)
    last = (int(match[1]), int(match[2])) if match else _FIRST
    versions = [(major, minor) for major in range(_FIRST[0], last[0] + 1) for minor in range(_MINORS)]
    return [f"pc-q35-{major}.{minor}" for major, minor in versions if (major, minor) <= last] or ["pc-q35-4.0"]
