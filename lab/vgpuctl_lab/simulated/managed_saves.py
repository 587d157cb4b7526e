# SPDX-License-Identifier: Apache-2.0
"""Saved domains of a simulated host: QEMU's driver keeps a domain's memory in a file, and starts it from there.

The test driver knows only that a domain is saved. Here is what it lacks: the saved XML, the state of vGPUs, devices
that are let go and held again, and a host that is switched off meanwhile.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from vgpuctl_lab.simulated.libvirt_domains import (
    IMAGE_SUFFIX,
    LIST_INACTIVE,
    STATE_PAUSED,
    STATE_RUNNING,
    XML_SECURE_MIGRATABLE,
    HostDomains,
    call,
)
from vgpuctl_lab.simulated.libvirt_wire import (
    DomainName,
    ErrorCode,
    Event,
    Packet,
    Procedure,
    Reader,
    Status,
    read_domain,
    text,
)
from vgpuctl_lab.simulated.libvirt_xml import abi_difference
from vgpuctl_lab.simulated.machine import migration

# VIR_DOMAIN_SAVE_RUNNING, VIR_DOMAIN_SAVE_PAUSED; VIR_DOMAIN_START_PAUSED, _BYPASS_CACHE, _FORCE_BOOT.
_RUNNING, _PAUSED = 1 << 1, 1 << 2
_START_PAUSED, _BYPASS_CACHE, _FORCE_BOOT = 1 << 0, 1 << 2, 1 << 3
_REASON_RESTORED, _REASON_USER = 3, 1
_STARTED_RESTORED, _SUSPENDED_RESTORED = 3, 4
_NO_IMAGE = "Requested operation is not valid: domain does not have managed save image"


@dataclass
class Image:
    """A saved domain. types: of its vGPUs, names and ids. is_paused: it does not run after its start."""

    xml: str
    is_paused: bool
    types: list[tuple[str, int]]


class ManagedSaves:
    """The saved domains of one host. folder: where their definitions are kept too."""

    def __init__(self, domains: HostDomains, folder: Path) -> None:
        self._domains = domains
        self._machine = domains.machine
        self._libvirtd = domains.libvirtd
        self._folder = folder

    async def open(self) -> None:
        """Tell the test driver which of its domains are saved; it has forgotten it."""
        for domain in await self._libvirtd.list_domains(LIST_INACTIVE):
            if self._path(domain.uuid).is_file():
                await self._libvirtd.call(Procedure.DOMAIN_CREATE, domain.encoded)
                await self._libvirtd.call(Procedure.DOMAIN_MANAGED_SAVE, domain.encoded + bytes(4))

    async def save(self, packet: Packet) -> Packet:
        """Save a running domain and end its QEMU, which lets its devices go."""
        reader = Reader(packet.body)
        domain, flags = reader.domain(), reader.number()
        if domain.uuid not in self._machine.state().domains:
            said = "Requested operation is not valid: domain is not running"
            return packet.error(said, ErrorCode.OPERATION_INVALID)
        reasons = migration.blockers(self._machine, domain.uuid)
        if reasons:
            said = f"Requested operation is not valid: cannot migrate domain: {'; '.join(reasons)}"
            return packet.error(said, ErrorCode.OPERATION_INVALID)
        lost = migration.cannot_be_saved(self._machine, domain.uuid)
        if lost or migration.cannot_be_read(self._machine, domain.uuid):
            said = f"operation failed: job 'domain save' failed: {lost or 'Channel error: Input/output error'}"
            return packet.error(said, ErrorCode.OPERATION_FAILED)
        async with self._domains.lock:
            state = await self._domains.state_of(domain)
            xml = await self._domains.xml_of(domain, XML_SECURE_MIGRATABLE)
            types = migration.types_of(self._machine, domain.uuid)
            answer = await self._libvirtd.ask(packet)
            if answer.status == Status.OK:
                is_paused = bool(flags & _PAUSED) or (state == STATE_PAUSED and not flags & _RUNNING)
                self._write(domain, Image(xml, is_paused, types))
                await self._domains.note_ends(reason="saved")
                self._domains.reasons.pop(domain.uuid, None)
        return packet.reply(answer.body, answer.status)

    async def say_xml(self, packet: Packet) -> Packet:
        """Answer with the XML that a saved domain starts with."""
        image = self._read(read_domain(packet.body))
        return packet.error(_NO_IMAGE, ErrorCode.OPERATION_INVALID) if image is None else packet.reply(text(image.xml))

    async def define_xml(self, packet: Packet) -> Packet:
        """Change the XML that a saved domain starts with, so that it gets other devices."""
        reader = Reader(packet.body)
        domain, xml, flags = reader.domain(), reader.optional_text(), reader.number()
        image = self._read(domain)
        if image is None:
            return packet.error(_NO_IMAGE, ErrorCode.OPERATION_INVALID)
        difference = abi_difference(image.xml, xml or image.xml, domain.name)
        if difference:
            return packet.error(f"unsupported configuration: {difference}", ErrorCode.CONFIG_UNSUPPORTED)
        is_paused = bool(flags & _PAUSED) or (image.is_paused and not flags & _RUNNING)
        self._write(domain, Image(xml or image.xml, is_paused, image.types))
        return packet.reply()

    async def remove(self, packet: Packet) -> Packet:
        """Throw a domain's saved memory away."""
        answer = await self._libvirtd.ask(packet)
        if answer.status == Status.OK:
            self._path(read_domain(packet.body).uuid).unlink(missing_ok=True)
        return packet.reply(answer.body, answer.status)

    async def start(self, packet: Packet) -> Packet:
        """Answer the start of a domain: from its saved memory if it has any, and not to forget it."""
        reader = Reader(packet.body)
        domain = reader.domain()
        has_flags = packet.procedure == Procedure.DOMAIN_CREATE_WITH_FLAGS
        flags = reader.number() if has_flags else 0
        image = self._read(domain)
        if image is None or flags & ~(_START_PAUSED | _BYPASS_CACHE | _FORCE_BOOT):
            return await self._domains.start(packet)
        if flags & _FORCE_BOOT:
            answer = await self._domains.start(call(Procedure.DOMAIN_CREATE, domain.encoded))
        else:
            answer = await self._restore(domain, image, is_paused=image.is_paused or bool(flags & _START_PAUSED))
        if answer.status != Status.OK:
            return packet.reply(answer.body, answer.status)
        self._path(domain.uuid).unlink(missing_ok=True)
        return packet.reply(domain.encoded if has_flags else b"")

    async def _restore(self, domain: DomainName, image: Image, *, is_paused: bool) -> Packet:
        """Start a domain as it was saved, with the devices of the saved XML; a vGPU of another type is reset."""
        async with self._domains.lock:
            self._libvirtd.rename_next(domain.uuid, Event.STARTED, _STARTED_RESTORED)
            answer = await self._domains.run_xml(call(Procedure.DOMAIN_CREATE_XML, text(image.xml) + bytes(4)))
            if answer.status != Status.OK:
                self._libvirtd.take_back(domain.uuid, Event.STARTED)
                return answer
            if migration.refused_late(self._machine, domain.uuid, image.types):
                migration.lose_state(self._machine, domain.uuid)
            self._domains.reasons[domain.uuid] = (STATE_RUNNING, _REASON_RESTORED)
            if is_paused:
                await self._domains.change(Procedure.DOMAIN_SUSPEND, domain, Event.SUSPENDED, _SUSPENDED_RESTORED)
                self._domains.reasons[domain.uuid] = (STATE_PAUSED, _REASON_USER)
            return answer

    def _read(self, domain: DomainName) -> Image | None:
        path = self._path(domain.uuid)
        return Image(**json.loads(path.read_text())) if path.is_file() else None

    def _write(self, domain: DomainName, image: Image) -> None:
        self._path(domain.uuid).write_text(json.dumps(asdict(image)))

    def _path(self, vm_uuid: str) -> Path:
        return self._folder / f"{vm_uuid}{IMAGE_SUFFIX}"
