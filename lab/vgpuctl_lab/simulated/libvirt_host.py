# SPDX-License-Identifier: Apache-2.0
"""What libvirt of a simulated host says about moves: processor, machine types, how fast a guest writes its memory.

The test driver tells of a host of its own, without these.
"""

import re
import struct
import uuid
from xml.etree import ElementTree

from vgpuctl_lab.simulated.libvirt_wire import INT, LLONG, REMOTE_PROGRAM, Packet, Procedure, parameters, text
from vgpuctl_lab.simulated.machine.migration import dirty_mib
from vgpuctl_lab.simulated.machine.state import MachineFolder

# VIR_DOMAIN_STATS_DIRTYRATE, VIR_DOMAIN_DIRTYRATE_MEASURED
_DIRTY_RATE_STATS, _MEASURED = 1 << 9, 2
_VERSION = re.compile(r"(\d+)\.(\d+)")
_FIRST = (4, 0)
_MINORS = 3
_MODEL = ("AMD", "EPYC-Milan", "0xa0011d5", 48)
_FEATURES = ("invpcid", "pdpe1gb", "topoext", "vaes")


def answer_about_moves(machine: MachineFolder, packet: Packet) -> Packet | None:
    """Answer a call about the host or a guest's memory; None for any other call."""
    if packet.program != REMOTE_PROGRAM:
        return None
    if packet.procedure == Procedure.CONNECT_GET_CAPABILITIES:
        return packet.reply(text(capabilities(machine.shape.versions.get("qemu-system-x86_64", ""))))
    if packet.procedure == Procedure.DOMAIN_START_DIRTY_RATE_CALC:
        return packet.reply()
    of_all = struct.pack(">II", 0, _DIRTY_RATE_STATS)
    if packet.procedure == Procedure.CONNECT_GET_ALL_DOMAIN_STATS and packet.body[:8] == of_all:
        return packet.reply(_dirty_rates(machine))
    return None


def _dirty_rates(machine: MachineFolder) -> bytes:
    """The body of an answer to CONNECT_GET_ALL_DOMAIN_STATS for all that run: measured."""
    running = machine.state().domains
    records = b"".join(text(one.name) + uuid.UUID(key).bytes + _record(machine, key) for key, one in running.items())
    return struct.pack(">I", len(running)) + records


def _record(machine: MachineFolder, vm_uuid: str) -> bytes:
    rate = dirty_mib(machine, vm_uuid)
    rates = (("dirtyrate.calc_status", INT, _MEASURED), ("dirtyrate.megabytes_per_second", LLONG, rate))
    return struct.pack(">i", 1) + parameters(rates)


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
