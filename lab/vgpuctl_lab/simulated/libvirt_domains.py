# SPDX-License-Identifier: Apache-2.0
"""The domains of a simulated host: libvirt's test driver keeps them, and the machine has its say at start and end."""

import asyncio
import struct
import uuid
from pathlib import Path
from xml.etree import ElementTree

from vgpuctl_lab.simulated import guest_state
from vgpuctl_lab.simulated.guest_licences import GuestLicences
from vgpuctl_lab.simulated.libvirt_wire import (
    REMOTE_PROGRAM,
    DomainName,
    ErrorCode,
    Event,
    Kind,
    Packet,
    Procedure,
    Reader,
    Status,
    read_domain,
    read_text,
    text,
)
from vgpuctl_lab.simulated.libvirt_xml import (
    as_test_domain,
    devices_of,
    domain_type,
    nodes_kib_of,
    pages_of,
    with_chosen_firmware,
    with_type,
)
from vgpuctl_lab.simulated.libvirtd_connection import LibvirtdConnection
from vgpuctl_lab.simulated.machine import domains
from vgpuctl_lab.simulated.machine.domains import StartRefused
from vgpuctl_lab.simulated.machine.state import MachineFolder
from vgpuctl_lab.simulated.volumes import VolumeContents

LIST_INACTIVE = 2
_LIST_ACTIVE, _LIST_AUTOSTART, _LIST_ALL = 1, 1 << 10, 0
STATE_RUNNING, STATE_PAUSED, STATE_SHUTOFF = 1, 3, 5
_XML_MIGRATABLE = 1 << 3
XML_SECURE_MIGRATABLE, XML_INACTIVE = 1 | _XML_MIGRATABLE, 1 << 1
IMAGE_SUFFIX = ".save"
"""Of the file beside a definition that keeps a saved domain."""
# Flags that the test driver's undefine knows: managed save and snapshot metadata.
_KNOWN_UNDEFINE_FLAGS = 0x3
# VIR_DOMAIN_DESTROY_GRACEFUL
_GRACEFUL = 1
_SHUTDOWNS = (Procedure.DOMAIN_SHUTDOWN, Procedure.DOMAIN_SHUTDOWN_FLAGS)
# Refusals of libvirt itself, before there is a QEMU.
_CODES = {
    "device not found: ": ErrorCode.DEVICE_MISSING,
    "Requested operation is not valid: ": ErrorCode.OPERATION_INVALID,
}


class HostDomains:
    """The domains of one host.

    definitions: a folder that keeps their XML for the next start of the lab. lock: whoever starts or ends one holds it.
    reasons: (state, reason) by UUID, where QEMU's driver has another reason than the test driver has.
    """

    def __init__(
        self, machine: MachineFolder, libvirtd: LibvirtdConnection, definitions: Path, volumes: VolumeContents
    ) -> None:
        self.machine = machine
        self.libvirtd = libvirtd
        self.lock = asyncio.Lock()
        self.reasons: dict[str, tuple[int, int]] = {}
        self._definitions = definitions
        self._volumes = volumes
        self._licences = GuestLicences(machine)
        self._types: dict[str, str] = {}

    async def open(self) -> None:
        """Define again what was defined before."""
        self._definitions.mkdir(exist_ok=True)
        for file in sorted(self._definitions.glob("*.xml")):
            await self.define_xml(file.read_text())

    def close(self) -> None:
        """End what runs beside the domains."""
        self._licences.forget()

    async def power_off(self) -> None:
        """Take the power of every running domain; definitions stay."""
        async with self.lock:
            for domain in await self.libvirtd.list_domains(_LIST_ACTIVE):
                await self.libvirtd.call(Procedure.DOMAIN_DESTROY, domain.encoded)
            await self.note_ends()

    async def autostarted(self) -> list[Packet]:
        """The calls that start the domains that are to start with the host."""
        found = await self.libvirtd.list_domains(LIST_INACTIVE | _LIST_AUTOSTART)
        return [call(Procedure.DOMAIN_CREATE, domain.encoded) for domain in found]

    async def define(self, packet: Packet) -> Packet:
        """Answer the definition of a domain, and keep it."""
        xml, end = read_text(packet.body)
        body = text(as_test_domain(xml)) + packet.body[end:]
        answer = await self.libvirtd.ask(Packet(packet.program, packet.procedure, Kind.CALL, 0, 0, body))
        if answer.status == Status.OK:
            domain = read_domain(answer.body)
            self._types[domain.uuid] = domain_type(xml)
            (self._definitions / f"{domain.uuid}.xml").write_text(xml)
        return packet.reply(answer.body, answer.status)

    async def define_xml(self, xml: str) -> Packet:
        """Define a domain."""
        return await self.define(call(Procedure.DOMAIN_DEFINE_XML, text(xml)))

    async def start(self, packet: Packet) -> Packet:
        """Answer the start of a defined domain."""
        domain = read_domain(packet.body)
        async with self.lock:
            described = await self.libvirtd.call(Procedure.DOMAIN_GET_XML_DESC, domain.encoded + bytes(4))
            if described.status != Status.OK:
                return packet.reply(described.body, described.status)
            return await self._run(packet, domain.uuid, domain.name, read_text(described.body)[0], packet.body)

    async def create(self, packet: Packet) -> Packet:
        """Answer the start of a domain by its XML."""
        async with self.lock:
            return await self.run_xml(packet)

    async def run_xml(self, packet: Packet) -> Packet:
        """Start a domain by its XML, which the packet begins with; whoever calls holds the lock."""
        xml, end = read_text(packet.body)
        root = ElementTree.fromstring(xml)
        vm_uuid = root.findtext("uuid")
        if vm_uuid is None:
            vm_uuid = str(uuid.uuid4())
            xml = xml.replace("<name>", f"<uuid>{vm_uuid}</uuid><name>", 1)
        self._types[vm_uuid] = domain_type(xml)
        body = text(as_test_domain(xml)) + packet.body[end:]
        return await self._run(packet, vm_uuid, root.findtext("name", ""), xml, body)

    async def _run(self, packet: Packet, vm_uuid: str, name: str, xml: str, body: bytes) -> Packet:
        """Start a domain once the machine agrees; if libvirt refuses, the machine rolls back."""
        if vm_uuid not in self.machine.state().domains:
            try:
                domains.start(self.machine, vm_uuid, name, devices_of(xml), pages_of(xml), nodes_kib_of(xml), xml=xml)
            except StartRefused as refused:
                return _refusal(packet, str(refused))
        answer = await self.libvirtd.ask(Packet(packet.program, packet.procedure, Kind.CALL, 0, 0, body))
        if answer.status != Status.OK:
            await self.note_ends()
        else:
            self.reasons.pop(vm_uuid, None)
            guest_state.make(self.machine, vm_uuid, xml)
            await self._licences.start(vm_uuid, self._volumes.of_optical_drives(xml))
        return packet.reply(answer.body, answer.status)

    async def end(self, packet: Packet) -> Packet:
        """Answer a call that ends a domain or its definition."""
        body = packet.body
        if packet.procedure == Procedure.DOMAIN_UNDEFINE_FLAGS:
            (flags,) = struct.unpack(">I", body[-4:])
            body = body[:-4] + struct.pack(">I", flags & _KNOWN_UNDEFINE_FLAGS)
        async with self.lock:
            answer = await self.libvirtd.ask(Packet(packet.program, packet.procedure, Kind.CALL, 0, 0, body))
            await self.note_ends(is_kill=_is_kill(packet), is_shutdown=packet.procedure in _SHUTDOWNS)
            if answer.status == Status.OK:
                self.reasons.pop(read_domain(packet.body).uuid, None)
                await self.forget_undefined()
        return packet.reply(answer.body, answer.status)

    async def describe(self, packet: Packet) -> Packet:
        """Answer with a domain's XML."""
        answer = await self.libvirtd.ask(packet)
        if answer.status != Status.OK:
            return packet.reply(answer.body, answer.status)
        xml, _ = read_text(answer.body)
        reader = Reader(packet.body)
        domain = reader.domain()
        if reader.number() & _XML_MIGRATABLE:
            xml = with_chosen_firmware(xml, await self.xml_of(domain))
        wanted = self._types.get(domain.uuid, "kvm")
        return packet.reply(text(with_type(xml, wanted)))

    async def xml_of(self, domain: DomainName, flags: int = 0) -> str:
        """A domain's XML. Raises ValueError for one that is not there."""
        answer = await self.describe(call(Procedure.DOMAIN_GET_XML_DESC, domain.encoded + struct.pack(">I", flags)))
        if answer.status != Status.OK:
            raise ValueError(f"no domain {domain.name}")
        return read_text(answer.body)[0]

    async def say_state(self, packet: Packet) -> Packet:
        """Answer with a domain's state, and the reason that QEMU's driver would give for it."""
        answer = await self.libvirtd.ask(packet)
        state, reason = self.reasons.get(read_domain(packet.body).uuid, (-1, 0))
        is_other = answer.status == Status.OK and struct.unpack(">ii", answer.body)[0] == state
        return packet.reply(struct.pack(">ii", state, reason) if is_other else answer.body, answer.status)

    async def state_of(self, domain: DomainName) -> int:
        """A domain's state."""
        answer = await self.libvirtd.call(Procedure.DOMAIN_GET_STATE, domain.encoded + bytes(4))
        return Reader(answer.body).number()

    async def change(self, procedure: Procedure, domain: DomainName, event: Event, detail: int | None) -> None:
        """Change a domain's state in the test driver, with the event that QEMU's driver would send."""
        self.libvirtd.rename_next(domain.uuid, event, detail)
        answer = await self.libvirtd.call(procedure, domain.encoded)
        if answer.status != Status.OK:
            self.libvirtd.take_back(domain.uuid, event)

    async def pause_or_resume(self, packet: Packet) -> Packet:
        """Answer `suspend` and `resume`, after which the test driver's reason is QEMU's."""
        answer = await self.libvirtd.ask(packet)
        if answer.status == Status.OK:
            self.reasons.pop(read_domain(packet.body).uuid, None)
        return packet.reply(answer.body, answer.status)

    async def note_ends(self, *, is_kill: bool = False, is_shutdown: bool = False, reason: str = "destroyed") -> None:
        """Let the machine know which domains have ended. reason: as libvirt writes it."""
        running = {domain.uuid for domain in await self.libvirtd.list_domains(_LIST_ACTIVE)}
        await self._licences.end(running, is_shutdown=is_shutdown)
        domains.end(self.machine, running, is_kill=is_kill, reason="shutdown" if is_shutdown else reason)

    async def forget_undefined(self) -> None:
        """Drop what is kept of domains that are not there any more."""
        there = {domain.uuid for domain in await self.libvirtd.list_domains(_LIST_ALL)}
        for file in self._definitions.glob("*.xml"):
            if file.stem not in there:
                file.unlink()
                file.with_suffix(IMAGE_SUFFIX).unlink(missing_ok=True)
                self._types.pop(file.stem, None)


def call(procedure: Procedure, body: bytes) -> Packet:
    """A call of the lab itself."""
    return Packet(REMOTE_PROGRAM, procedure, Kind.CALL, 0, Status.OK, body)


def _refusal(packet: Packet, words: str) -> Packet:
    """The answer to a start that libvirt refuses itself, or that its QEMU ends."""
    for begin, code in _CODES.items():
        if words.startswith(begin):
            return packet.error(words, code)
    return packet.error(f"internal error: qemu unexpectedly closed the monitor: {words}")


def _is_kill(packet: Packet) -> bool:
    """Return whether libvirt may end the QEMU by SIGKILL."""
    if packet.procedure == Procedure.DOMAIN_DESTROY_FLAGS:
        (flags,) = struct.unpack(">I", packet.body[-4:])
        return not flags & _GRACEFUL
    return packet.procedure == Procedure.DOMAIN_DESTROY
