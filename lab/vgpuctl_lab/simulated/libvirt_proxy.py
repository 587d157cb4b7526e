# SPDX-License-Identifier: Apache-2.0
"""One simulated host's libvirt: many clients on one connection to the test driver of the lab's libvirtd.

The daemon and its answers are libvirt's own. This proxy keeps the connection open, because the test driver forgets
everything at its end; calls a `kvm` domain a `test` domain and back; and lets the machine have its say when a
domain starts and ends: its devices must be there, and its process then holds them.
"""

import asyncio
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from vgpuctl_lab.simulated.libvirt_domains import HostDomains
from vgpuctl_lab.simulated.libvirt_host import answer_about_moves
from vgpuctl_lab.simulated.libvirt_wire import (
    KEEPALIVE_PING,
    KEEPALIVE_PONG,
    KEEPALIVE_PROGRAM,
    QEMU_PROGRAM,
    Kind,
    Packet,
    Procedure,
    Status,
    cpu_map,
    read_domain,
    read_text,
    text,
)
from vgpuctl_lab.simulated.libvirtd_connection import LibvirtdConnection, read_packet, send
from vgpuctl_lab.simulated.machine.replayed_host import read_libvirt
from vgpuctl_lab.simulated.machine.state import MachineFolder
from vgpuctl_lab.simulated.managed_saves import ManagedSaves
from vgpuctl_lab.simulated.monitor import query_pci
from vgpuctl_lab.simulated.moves import Moves, Peers
from vgpuctl_lab.simulated.replayed_libvirt import answer_of
from vgpuctl_lab.simulated.volumes import VolumeContents

# Migration v2, v3 and p2p, its change protection, XML for it, without a running guest, with parameters.
_FEATURES = (3, 6, 4, 7, 11, 12, 13)
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
    Procedure.DOMAIN_MANAGED_SAVE,
)
_WAITS_FOR_JOBS = (
    Procedure.DOMAIN_RESUME,
    Procedure.DOMAIN_SHUTDOWN,
    Procedure.DOMAIN_SHUTDOWN_FLAGS,
    Procedure.DOMAIN_MANAGED_SAVE,
)
_STARTS = (Procedure.DOMAIN_CREATE, Procedure.DOMAIN_CREATE_WITH_FLAGS)
_ENDS = (
    Procedure.DOMAIN_SHUTDOWN,
    Procedure.DOMAIN_SHUTDOWN_FLAGS,
    Procedure.DOMAIN_DESTROY,
    Procedure.DOMAIN_DESTROY_FLAGS,
    Procedure.DOMAIN_UNDEFINE,
    Procedure.DOMAIN_UNDEFINE_FLAGS,
)


class LibvirtProxy:
    """The libvirt of one host. definitions: a folder that keeps the domains' XML for the next start of the lab.

    peers: the hosts that its domains can move to.
    """

    def __init__(self, machine: MachineFolder, node: Path, definitions: Path, peers: Peers) -> None:
        self._machine = machine
        self._node = node
        self._volumes = VolumeContents(definitions.with_name("volumes"))
        self._captured = read_libvirt(machine.folder)
        self._libvirtd = LibvirtdConnection(self.drop_clients)
        self._domains = HostDomains(machine, self._libvirtd, definitions, self._volumes)
        self._saves = ManagedSaves(self._domains, definitions)
        self._moves = Moves(self._domains, machine.folder.name, peers)
        self._clients: set[StreamWriter] = set()

    async def open(self, socket_path: str) -> None:
        """Connect to the daemon, give this host a node of its own, and define again what was defined before."""
        await self._libvirtd.open(socket_path)
        await self._libvirtd.call(
            Procedure.CONNECT_OPEN, struct.pack(">I", 1) + text(f"test://{self._node}") + bytes(4)
        )
        await self._domains.open()
        await self._saves.open()

    async def close(self) -> None:
        """Let go of the daemon and the clients."""
        self.drop_clients()
        self._moves.close()
        self._domains.close()
        self._libvirtd.close()

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
                        send(writer, Packet(KEEPALIVE_PROGRAM, KEEPALIVE_PONG, Kind.MESSAGE, 0, Status.OK))
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
                    task.add_done_callback(partial(_end_at_failure, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._clients.discard(writer)
            self._libvirtd.forget(writer)
            writer.close()
            await self._moves.client_gone(writer)
            for task in list(tasks):
                await asyncio.wait([task])

    def drop_clients(self) -> None:
        """Hang up on everybody, as the end of a host does."""
        for writer in list(self._clients):
            writer.transport.abort()

    async def power_off(self) -> None:
        """Take the power of every running domain; definitions stay."""
        self._moves.jobs.forget()
        await self._domains.power_off()

    async def start_autostarted(self) -> None:
        """Start the domains that are to start with the host, as libvirt's daemon does when it comes up."""
        for domain in await self._domains.autostarted():
            await self._saves.start(domain)

    def running(self) -> int:
        """How many VMs run."""
        return len(self._machine.state().domains)

    async def _answer(self, packet: Packet, writer: StreamWriter) -> None:
        try:
            if packet.procedure == Procedure.CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY:
                async with self._domains.lock:
                    answer = await self._libvirtd.watch(packet, writer)
            elif packet.procedure == Procedure.CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY:
                # An event after this answer would meet a client that closes, and libvirt's client then hangs for ever.
                self._libvirtd.forget(writer)
                answer = packet.reply()
            elif packet.is_picture:
                await self._libvirtd.pass_stream(packet, writer)
                return
            else:
                answer = await self._work_of(packet, writer)(packet)
        except (struct.error, ValueError, KeyError, ElementTree.ParseError) as error:
            answer = packet.error(f"the lab cannot read the call {packet.procedure}: {error}")
        except ConnectionError:
            writer.transport.abort()
            return
        except OSError as error:
            answer = packet.error(f"the lab cannot carry out the call {packet.procedure}: {error}")
        send(writer, answer)
        if packet.is_copy:
            for part in self._volumes.parts(packet.body):
                stream = Packet(packet.program, packet.procedure, Kind.STREAM, packet.serial, Status.CONTINUE, part)
                send(writer, stream)
            # The end of the data; the test driver has none.
            send(writer, Packet(packet.program, packet.procedure, Kind.STREAM, packet.serial, Status.CONTINUE))

    def _work_of(self, packet: Packet, writer: StreamWriter) -> Callable[[Packet], Awaitable[Packet]]:
        if packet.program == QEMU_PROGRAM:
            return self._ask_monitor
        captured = None if self._captured is None else answer_of(self._captured, packet)
        if (told := captured or answer_about_moves(self._machine, packet)) is not None:
            return partial(_given, told)
        if packet.procedure in _WRITES_TO_DISK and "disk-full" in self._machine.state().host_faults:
            return self._refuse_for_want_of_space
        if packet.procedure in _WAITS_FOR_JOBS and self._moves.jobs.has_job(read_domain(packet.body).uuid):
            return self._moves.jobs.refuse
        works: dict[int, Callable[[Packet], Awaitable[Packet]]] = {
            Procedure.AUTH_LIST: self._list_no_authentication,
            Procedure.CONNECT_GET_HOSTNAME: self._say_hostname,
            Procedure.NODE_GET_CPU_MAP: self._say_cpus,
            Procedure.STORAGE_VOL_UPLOAD: self._say_ok,
            Procedure.STORAGE_VOL_DELETE: self._delete_volume,
            Procedure.STORAGE_VOL_DOWNLOAD: self._say_ok if packet.is_copy else self._forward,
            Procedure.DOMAIN_CREATE_XML: self._domains.create,
            Procedure.DOMAIN_GET_XML_DESC: self._domains.describe,
            Procedure.CONNECT_SUPPORTS_FEATURE: self._say_feature,
            Procedure.DOMAIN_GET_STATE: self._domains.say_state,
            Procedure.DOMAIN_SUSPEND: self._domains.pause_or_resume,
            Procedure.DOMAIN_RESUME: self._domains.pause_or_resume,
            Procedure.DOMAIN_MANAGED_SAVE: self._saves.save,
            Procedure.DOMAIN_MANAGED_SAVE_REMOVE: self._saves.remove,
            Procedure.DOMAIN_MANAGED_SAVE_GET_XML_DESC: self._saves.say_xml,
            Procedure.DOMAIN_MANAGED_SAVE_DEFINE_XML: self._saves.define_xml,
            Procedure.DOMAIN_MIGRATE_BEGIN3_PARAMS: partial(self._moves.begin, writer),
            Procedure.DOMAIN_MIGRATE_PREPARE3_PARAMS: partial(self._moves.prepare, writer),
            Procedure.DOMAIN_MIGRATE_PERFORM3_PARAMS: self._moves.perform,
            Procedure.DOMAIN_MIGRATE_FINISH3_PARAMS: self._moves.finish,
            Procedure.DOMAIN_MIGRATE_CONFIRM3_PARAMS: self._moves.confirm,
            Procedure.DOMAIN_MIGRATE_SET_MAX_DOWNTIME: self._moves.jobs.set_max_downtime,
            Procedure.DOMAIN_MIGRATE_GET_MAX_DOWNTIME: self._moves.jobs.say_max_downtime,
            Procedure.DOMAIN_GET_JOB_INFO: self._moves.jobs.say_job,
            Procedure.DOMAIN_GET_JOB_STATS: self._moves.jobs.say_statistics,
            Procedure.DOMAIN_ABORT_JOB: self._moves.jobs.abort,
            Procedure.DOMAIN_ABORT_JOB_FLAGS: self._moves.jobs.abort,
            **dict.fromkeys(_ANSWERED_HERE, self._say_ok),
            **dict.fromkeys(_DEFINES, self._domains.define),
            **dict.fromkeys(_STARTS, self._saves.start),
            **dict.fromkeys(_ENDS, self._domains.end),
        }
        return works.get(packet.procedure, self._forward)

    async def _say_ok(self, packet: Packet) -> Packet:
        return packet.reply()

    async def _say_hostname(self, packet: Packet) -> Packet:
        """The test driver would tell the name of the machine that runs the lab."""
        return packet.reply(text(self._machine.shape.hostname))

    async def _say_feature(self, packet: Packet) -> Packet:
        """Tell the features of QEMU's driver; the others are those of the daemon before it."""
        (feature,) = struct.unpack(">i", packet.body)
        return packet.reply(struct.pack(">i", 1)) if feature in _FEATURES else await self._forward(packet)

    async def _say_cpus(self, packet: Packet) -> Packet:
        """All CPUs of the node, online. The test driver tells of eight always, and its clients then pin to no other."""
        count = int(ElementTree.parse(self._node).findtext("cpu/active", "0"))
        return packet.reply(cpu_map(count, packet.body))

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
        answer = await self._libvirtd.ask(packet)
        return packet.reply(answer.body, answer.status)

    def _take_stream(self, packet: Packet, streams: set[int], writer: StreamWriter) -> None:
        """The test driver stores no volume's content: take it in its place, and agree at its end."""
        if packet.serial in streams and packet.status == Status.CONTINUE:
            self._volumes.take(packet.serial, packet.body)
        elif packet.serial in streams:
            streams.discard(packet.serial)
            self._volumes.end(packet.serial)
            send(writer, Packet(packet.program, packet.procedure, Kind.STREAM, packet.serial, Status.OK))

    async def _ask_monitor(self, packet: Packet) -> Packet:
        """Answer `query-pci` from the domain's devices; the test driver has no QEMU that could."""
        domain = read_domain(packet.body)
        command, _ = read_text(packet.body, len(domain.encoded))
        if "query-pci" not in command or domain.uuid not in self._machine.state().domains:
            return await self._forward(packet)
        return packet.reply(text(query_pci(self._machine, await self._domains.xml_of(domain))))


def _end_at_failure(writer: StreamWriter, task: "asyncio.Task[None]") -> None:
    """Hang up on a client whose call the lab has failed to answer; it would wait for ever."""
    if not task.cancelled() and task.exception() is not None:
        writer.transport.abort()
        about = {"message": "a call of libvirt failed", "exception": task.exception()}
        task.get_loop().call_exception_handler(about)


async def _given(answer: Packet, _packet: Packet) -> Packet:
    return answer
