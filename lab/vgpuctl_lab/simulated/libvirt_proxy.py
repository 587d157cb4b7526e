# SPDX-License-Identifier: Apache-2.0
"""One simulated host's libvirt: many clients on one connection to the test driver of the lab's libvirtd.

The daemon and its answers are libvirt's own. This proxy keeps the connection open, because the test driver forgets
everything at its end; calls a `kvm` domain a `test` domain and back; and lets the machine have its say when a
domain starts and ends: its devices must be there, and its process then holds them.
"""

import asyncio
import struct
import uuid
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from vgpuctl_lab.simulated import guest_state
from vgpuctl_lab.simulated.guest_licences import GuestLicences
from vgpuctl_lab.simulated.libvirt_wire import (
    KEEPALIVE_PING,
    KEEPALIVE_PONG,
    KEEPALIVE_PROGRAM,
    LONGEST_PACKET,
    QEMU_PROGRAM,
    REMOTE_PROGRAM,
    DomainName,
    Kind,
    Packet,
    Procedure,
    Status,
    cpu_map,
    decode,
    read_domain,
    read_domains,
    read_text,
    text,
)
from vgpuctl_lab.simulated.libvirt_xml import (
    as_test_domain,
    devices_of,
    domain_type,
    nodes_kib_of,
    pages_of,
    with_type,
)
from vgpuctl_lab.simulated.machine import domains
from vgpuctl_lab.simulated.machine.domains import StartRefused
from vgpuctl_lab.simulated.machine.replayed_host import read_libvirt
from vgpuctl_lab.simulated.machine.state import MachineFolder
from vgpuctl_lab.simulated.monitor import query_pci
from vgpuctl_lab.simulated.replayed_libvirt import answer_of
from vgpuctl_lab.simulated.volumes import VolumeContents

_LIST_ACTIVE, _LIST_INACTIVE, _LIST_AUTOSTART, _LIST_ALL = 1, 2, 1 << 10, 0
# Flags that the test driver's undefine knows: managed save and snapshot metadata.
_KNOWN_UNDEFINE_FLAGS = 0x3
# VIR_DOMAIN_DESTROY_GRACEFUL
_GRACEFUL = 1
_ANSWERED_HERE = (
    Procedure.CONNECT_OPEN,
    Procedure.CONNECT_CLOSE,
    Procedure.CONNECT_REGISTER_CLOSE_CALLBACK,
    Procedure.CONNECT_UNREGISTER_CLOSE_CALLBACK,
)
_DEFINES = (Procedure.DOMAIN_DEFINE_XML, Procedure.DOMAIN_DEFINE_XML_FLAGS)
_WRITES_TO_DISK = (
    Procedure.DOMAIN_DEFINE_XML,
    Procedure.DOMAIN_DEFINE_XML_FLAGS,
    Procedure.STORAGE_VOL_CREATE_XML,
    Procedure.STORAGE_VOL_CREATE_XML_FROM,
)
_STARTS = (Procedure.DOMAIN_CREATE, Procedure.DOMAIN_CREATE_WITH_FLAGS)
_SHUTDOWNS = (Procedure.DOMAIN_SHUTDOWN, Procedure.DOMAIN_SHUTDOWN_FLAGS)
_ENDS = (
    *_SHUTDOWNS,
    Procedure.DOMAIN_DESTROY,
    Procedure.DOMAIN_DESTROY_FLAGS,
    Procedure.DOMAIN_UNDEFINE,
    Procedure.DOMAIN_UNDEFINE_FLAGS,
)


class LibvirtProxy:
    """The libvirt of one host. definitions: a folder that keeps the domains' XML for the next start of the lab."""

    def __init__(self, machine: MachineFolder, node: Path, definitions: Path) -> None:
        self._machine = machine
        self._node = node
        self._definitions = definitions
        self._types: dict[str, str] = {}
        self._volumes = VolumeContents(definitions.with_name("volumes"))
        self._licences = GuestLicences(machine)
        self._captured = read_libvirt(machine.folder)
        self._serial = 0
        self._waiting: dict[int, asyncio.Future[Packet]] = {}
        self._streams: dict[int, asyncio.Queue[Packet]] = {}
        self._writer: StreamWriter | None = None
        self._pump: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._clients: set[StreamWriter] = set()
        self._watchers: set[StreamWriter] = set()
        self._watch: Packet | None = None

    async def open(self, socket_path: str) -> None:
        """Connect to the daemon, give this host a node of its own, and define again what was defined before."""
        reader, self._writer = await asyncio.open_unix_connection(socket_path)
        self._pump = asyncio.create_task(self._take_answers(reader))
        await self._call(Procedure.AUTH_LIST)
        await self._call(Procedure.CONNECT_OPEN, struct.pack(">I", 1) + text(f"test://{self._node}") + bytes(4))
        self._definitions.mkdir(exist_ok=True)
        for file in sorted(self._definitions.glob("*.xml")):
            await self._define(
                Packet(REMOTE_PROGRAM, Procedure.DOMAIN_DEFINE_XML, Kind.CALL, 0, 0, text(file.read_text()))
            )

    async def close(self) -> None:
        """Let go of the daemon and the clients."""
        self.drop_clients()
        self._licences.forget()
        if self._pump is not None:
            self._pump.cancel()
        if self._writer is not None:
            self._writer.close()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer one client until it goes."""
        self._clients.add(writer)
        streams: set[int] = set()
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                packet = await read_packet(reader)
                if packet.program == KEEPALIVE_PROGRAM:
                    if packet.procedure == KEEPALIVE_PING:
                        _send(writer, Packet(KEEPALIVE_PROGRAM, KEEPALIVE_PONG, Kind.MESSAGE, 0, Status.OK))
                elif packet.kind == Kind.STREAM:
                    self._take_stream(packet, streams, writer)
                elif packet.kind == Kind.CALL:
                    if packet.is_upload or packet.is_copy or packet.is_picture:
                        streams.add(packet.serial)
                    if packet.is_upload:
                        self._volumes.begin(packet.serial, packet.body)
                    task = asyncio.create_task(self._answer(packet, writer))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._clients.discard(writer)
            self._watchers.discard(writer)
            for task in list(tasks):
                with suppress(asyncio.CancelledError):
                    await task
            writer.close()

    def drop_clients(self) -> None:
        """Hang up on everybody, as the end of a host does."""
        for writer in list(self._clients):
            writer.transport.abort()

    async def power_off(self) -> None:
        """Take the power of every running domain; definitions stay."""
        async with self._lock:
            for domain in await self._list(_LIST_ACTIVE):
                await self._call(Procedure.DOMAIN_DESTROY, domain.encoded)
            await self._note_ends()

    async def start_autostarted(self) -> None:
        """Start the domains that are to start with the host, as libvirt's daemon does when it comes up."""
        for domain in await self._list(_LIST_INACTIVE | _LIST_AUTOSTART):
            await self._start(Packet(REMOTE_PROGRAM, Procedure.DOMAIN_CREATE, Kind.CALL, 0, 0, domain.encoded))

    def running(self) -> int:
        """How many VMs run."""
        return len(self._machine.state().domains)

    async def _answer(self, packet: Packet, writer: StreamWriter) -> None:
        try:
            if packet.procedure == Procedure.CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY:
                answer = await self._watch_domains(packet)
                self._watchers.add(writer)
            elif packet.procedure == Procedure.CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY:
                # An event after this answer would meet a client that closes, and libvirt's client then hangs for ever.
                self._watchers.discard(writer)
                answer = packet.reply()
            elif packet.is_picture:
                await self._pass_picture(packet, writer)
                return
            else:
                answer = await self._work_of(packet)(packet)
        except (struct.error, ValueError, ElementTree.ParseError) as error:
            answer = packet.error(f"the lab cannot read the call {packet.procedure}: {error}")
        except ConnectionError:
            writer.transport.abort()
            return
        except OSError as error:
            answer = packet.error(f"the lab cannot carry out the call {packet.procedure}: {error}")
        _send(writer, answer)
        if packet.is_copy:
            for part in self._volumes.parts(packet.body):
                stream = Packet(packet.program, packet.procedure, Kind.STREAM, packet.serial, Status.CONTINUE, part)
                _send(writer, stream)
            # The end of the data; the test driver has none.
            _send(writer, Packet(packet.program, packet.procedure, Kind.STREAM, packet.serial, Status.CONTINUE))

    def _work_of(self, packet: Packet) -> Callable[[Packet], Awaitable[Packet]]:
        if packet.program == QEMU_PROGRAM:
            return self._ask_monitor
        if self._captured is not None:
            captured = answer_of(self._captured, packet)
            if captured is not None:
                return partial(_given, captured)
        if packet.procedure in _WRITES_TO_DISK and "disk-full" in self._machine.state().host_faults:
            return self._refuse_for_want_of_space
        works: dict[int, Callable[[Packet], Awaitable[Packet]]] = {
            Procedure.AUTH_LIST: self._list_no_authentication,
            Procedure.CONNECT_GET_HOSTNAME: self._say_hostname,
            Procedure.NODE_GET_CPU_MAP: self._say_cpus,
            Procedure.STORAGE_VOL_UPLOAD: self._say_ok,
            Procedure.STORAGE_VOL_DELETE: self._delete_volume,
            Procedure.STORAGE_VOL_DOWNLOAD: self._say_ok if packet.is_copy else self._forward,
            Procedure.DOMAIN_CREATE_XML: self._create,
            Procedure.DOMAIN_GET_XML_DESC: self._describe,
            **dict.fromkeys(_ANSWERED_HERE, self._say_ok),
            **dict.fromkeys(_DEFINES, self._define),
            **dict.fromkeys(_STARTS, self._start),
            **dict.fromkeys(_ENDS, self._end),
        }
        return works.get(packet.procedure, self._forward)

    async def _say_ok(self, packet: Packet) -> Packet:
        return packet.reply()

    async def _say_hostname(self, packet: Packet) -> Packet:
        """The test driver would tell the name of the machine that runs the lab."""
        return packet.reply(text(self._machine.shape.hostname))

    async def _say_cpus(self, packet: Packet) -> Packet:
        """All CPUs of the node, online. The test driver tells of eight always, and its clients then pin to no other."""
        count = int(ElementTree.parse(self._node).findtext("cpu/active", "0"))
        return packet.reply(cpu_map(count, packet.body))

    async def _watch_domains(self, packet: Packet) -> Packet:
        """The daemon takes one registration of a connection; all clients share it, and its number."""
        async with self._lock:
            if self._watch is None:
                self._watch = await self._ask(packet)
        return packet.reply(self._watch.body, self._watch.status)

    async def _refuse_for_want_of_space(self, packet: Packet) -> Packet:
        return packet.error("cannot write to /var/lib/libvirt: No space left on device")

    async def _list_no_authentication(self, packet: Packet) -> Packet:
        return packet.reply(struct.pack(">II", 1, 0))

    async def _delete_volume(self, packet: Packet) -> Packet:
        answer = await self._forward(packet)
        if answer.status == Status.OK:
            self._volumes.delete(packet.body)
        return answer

    async def _forward(self, packet: Packet) -> Packet:
        answer = await self._ask(packet)
        return packet.reply(answer.body, answer.status)

    async def _pass_picture(self, packet: Packet, writer: StreamWriter) -> None:
        """Pass on what the test driver sends as a guest's screen, and end the daemon's stream when all of it came."""
        stream: asyncio.Queue[Packet] = asyncio.Queue()
        answer = await self._ask(packet, stream)
        _send(writer, packet.reply(answer.body, answer.status))
        part = answer
        while answer.status == Status.OK and (part is answer or part.body):
            part = await stream.get()
            _send(writer, replace(part, serial=packet.serial))
        self._streams.pop(answer.serial, None)
        if answer.status == Status.OK and self._writer is not None:
            _send(self._writer, replace(part, status=Status.OK, body=b""))

    def _take_stream(self, packet: Packet, streams: set[int], writer: StreamWriter) -> None:
        """The test driver stores no volume's content: take it in its place, and agree at its end."""
        if packet.serial in streams and packet.status == Status.CONTINUE:
            self._volumes.take(packet.serial, packet.body)
        elif packet.serial in streams:
            streams.discard(packet.serial)
            self._volumes.end(packet.serial)
            _send(writer, Packet(packet.program, packet.procedure, Kind.STREAM, packet.serial, Status.OK))

    async def _define(self, packet: Packet) -> Packet:
        xml, end = read_text(packet.body)
        body = text(as_test_domain(xml)) + packet.body[end:]
        answer = await self._ask(Packet(packet.program, packet.procedure, Kind.CALL, 0, 0, body))
        if answer.status == Status.OK:
            domain = read_domain(answer.body)
            self._types[domain.uuid] = domain_type(xml)
            (self._definitions / f"{domain.uuid}.xml").write_text(xml)
        return packet.reply(answer.body, answer.status)

    async def _start(self, packet: Packet) -> Packet:
        domain = read_domain(packet.body)
        async with self._lock:
            described = await self._call(Procedure.DOMAIN_GET_XML_DESC, domain.encoded + bytes(4))
            if described.status != Status.OK:
                return packet.reply(described.body, described.status)
            return await self._run(packet, domain.uuid, domain.name, read_text(described.body)[0], packet.body)

    async def _create(self, packet: Packet) -> Packet:
        xml, end = read_text(packet.body)
        root = ElementTree.fromstring(xml)
        vm_uuid = root.findtext("uuid")
        if vm_uuid is None:
            vm_uuid = str(uuid.uuid4())
            xml = xml.replace("<name>", f"<uuid>{vm_uuid}</uuid><name>", 1)
        self._types[vm_uuid] = domain_type(xml)
        async with self._lock:
            body = text(as_test_domain(xml)) + packet.body[end:]
            return await self._run(packet, vm_uuid, root.findtext("name", ""), xml, body)

    async def _run(self, packet: Packet, vm_uuid: str, name: str, xml: str, body: bytes) -> Packet:
        """Start a domain once the machine agrees; if libvirt refuses, the machine rolls back."""
        if vm_uuid not in self._machine.state().domains:
            try:
                domains.start(self._machine, vm_uuid, name, devices_of(xml), pages_of(xml), nodes_kib_of(xml), xml=xml)
            except StartRefused as refused:
                return packet.error(f"internal error: qemu unexpectedly closed the monitor: {refused}")
        answer = await self._ask(Packet(packet.program, packet.procedure, Kind.CALL, 0, 0, body))
        if answer.status != Status.OK:
            await self._note_ends()
        else:
            guest_state.make(self._machine, vm_uuid, xml)
            await self._licences.start(vm_uuid, self._volumes.of_optical_drives(xml))
        return packet.reply(answer.body, answer.status)

    async def _end(self, packet: Packet) -> Packet:
        body = packet.body
        if packet.procedure == Procedure.DOMAIN_UNDEFINE_FLAGS:
            (flags,) = struct.unpack(">I", body[-4:])
            body = body[:-4] + struct.pack(">I", flags & _KNOWN_UNDEFINE_FLAGS)
        async with self._lock:
            answer = await self._ask(Packet(packet.program, packet.procedure, Kind.CALL, 0, 0, body))
            await self._note_ends(is_kill=_is_kill(packet), is_shutdown=packet.procedure in _SHUTDOWNS)
            if answer.status == Status.OK:
                await self._forget_undefined()
        return packet.reply(answer.body, answer.status)

    async def _describe(self, packet: Packet) -> Packet:
        answer = await self._ask(packet)
        if answer.status != Status.OK:
            return packet.reply(answer.body, answer.status)
        xml, _ = read_text(answer.body)
        wanted = self._types.get(read_domain(packet.body).uuid, "kvm")
        return packet.reply(text(with_type(xml, wanted)))

    async def _ask_monitor(self, packet: Packet) -> Packet:
        """Answer `query-pci` from the domain's devices; the test driver has no QEMU that could."""
        domain = read_domain(packet.body)
        command, _ = read_text(packet.body, len(domain.encoded))
        if "query-pci" not in command or domain.uuid not in self._machine.state().domains:
            return await self._forward(packet)
        described = await self._call(Procedure.DOMAIN_GET_XML_DESC, domain.encoded + bytes(4))
        if described.status != Status.OK:
            return packet.reply(described.body, described.status)
        return packet.reply(text(query_pci(self._machine, read_text(described.body)[0])))

    async def _note_ends(self, *, is_kill: bool = False, is_shutdown: bool = False) -> None:
        running = {domain.uuid for domain in await self._list(_LIST_ACTIVE)}
        await self._licences.end(running, is_shutdown=is_shutdown)
        domains.end(self._machine, running, is_kill=is_kill)

    async def _forget_undefined(self) -> None:
        there = {domain.uuid for domain in await self._list(_LIST_ALL)}
        for file in self._definitions.glob("*.xml"):
            if file.stem not in there:
                file.unlink()
                self._types.pop(file.stem, None)

    async def _list(self, flags: int) -> list[DomainName]:
        answer = await self._call(Procedure.CONNECT_LIST_ALL_DOMAINS, struct.pack(">II", 1, flags))
        return read_domains(answer.body) if answer.status == Status.OK else []

    async def _call(self, procedure: Procedure, body: bytes = b"") -> Packet:
        return await self._ask(Packet(REMOTE_PROGRAM, procedure, Kind.CALL, 0, 0, body))

    async def _ask(self, packet: Packet, stream: "asyncio.Queue[Packet] | None" = None) -> Packet:
        """Send a call under a serial of ours and wait for its answer. stream: takes the packets of its stream."""
        if self._writer is None or self._writer.is_closing():
            raise ConnectionError("the lab's libvirtd is gone")
        self._serial += 1
        serial = self._serial
        self._waiting[serial] = asyncio.get_running_loop().create_future()
        if stream is not None:
            self._streams[serial] = stream
        ours = Packet(packet.program, packet.procedure, Kind.CALL, serial, Status.OK, packet.body, packet.version)
        self._writer.write(ours.encode())
        try:
            return await self._waiting[serial]
        finally:
            del self._waiting[serial]

    async def _take_answers(self, reader: StreamReader) -> None:
        try:
            while True:
                packet = await read_packet(reader)
                if packet.program == KEEPALIVE_PROGRAM and self._writer is not None:
                    _send(self._writer, Packet(KEEPALIVE_PROGRAM, KEEPALIVE_PONG, Kind.MESSAGE, 0, Status.OK))
                elif packet.kind == Kind.MESSAGE and packet.procedure == Procedure.DOMAIN_EVENT_CALLBACK_LIFECYCLE:
                    for client in self._watchers:
                        _send(client, packet)
                elif packet.kind == Kind.STREAM and packet.serial in self._streams:
                    self._streams[packet.serial].put_nowait(packet)
                elif packet.kind == Kind.REPLY and packet.serial in self._waiting:
                    self._waiting[packet.serial].set_result(packet)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # The lab's libvirtd has gone.
        finally:
            # The socket can still be written to after libvirtd has hung up, and no answer would ever come.
            if self._writer is not None:
                self._writer.close()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ConnectionError("the lab's libvirtd is gone"))
            self.drop_clients()


async def _given(answer: Packet, _packet: Packet) -> Packet:
    return answer


async def read_packet(reader: StreamReader) -> Packet:
    """Read one packet. Raises IncompleteReadError at the end, ConnectionError for anything but a packet."""
    length = await reader.readexactly(4)
    (size,) = struct.unpack(">I", length)
    if not 28 <= size <= LONGEST_PACKET:
        raise ConnectionError(f"a packet of {size} bytes")
    return decode(length + await reader.readexactly(size - 4))


def _send(writer: StreamWriter, packet: Packet) -> None:
    if not writer.is_closing():
        writer.write(packet.encode())


def _is_kill(packet: Packet) -> bool:
    """Return whether libvirt may end the QEMU by SIGKILL."""
    if packet.procedure == Procedure.DOMAIN_DESTROY_FLAGS:
        (flags,) = struct.unpack(">I", packet.body[-4:])
        return not flags & _GRACEFUL
    return packet.procedure == Procedure.DOMAIN_DESTROY
