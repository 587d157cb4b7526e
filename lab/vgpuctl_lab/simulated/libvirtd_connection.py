# SPDX-License-Identifier: Apache-2.0
"""The one connection to the lab's libvirtd that all clients of a simulated host share: calls, streams and events."""

import asyncio
import struct
from asyncio import StreamReader, StreamWriter
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace

from vgpuctl_lab.simulated.libvirt_wire import (
    KEEPALIVE_PONG,
    KEEPALIVE_PROGRAM,
    LONGEST_PACKET,
    REMOTE_PROGRAM,
    DomainName,
    Event,
    Kind,
    Packet,
    Procedure,
    Status,
    decode,
    read_domain,
    read_domains,
)

_LIFECYCLE = struct.Struct(">II")


class LibvirtdConnection:
    """The connection. on_end: called when libvirtd has gone."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._serial = 0
        self._waiting: dict[int, asyncio.Future[Packet]] = {}
        self._streams: dict[int, asyncio.Queue[Packet]] = {}
        self._writer: StreamWriter | None = None
        self._pump: asyncio.Task[None] | None = None
        self._watchers: set[StreamWriter] = set()
        self._watch: Packet | None = None
        self._details: defaultdict[tuple[str, int], deque[int | None]] = defaultdict(deque)

    async def open(self, socket_path: str) -> None:
        """Connect to libvirtd."""
        reader, self._writer = await asyncio.open_unix_connection(socket_path)
        self._pump = asyncio.create_task(self._take_answers(reader))
        await self.call(Procedure.AUTH_LIST)

    def close(self) -> None:
        """Let go of libvirtd."""
        if self._pump is not None:
            self._pump.cancel()
        if self._writer is not None:
            self._writer.close()

    async def call(self, procedure: Procedure, body: bytes = b"") -> Packet:
        """Call a procedure of the remote program. Raises ConnectionError."""
        return await self.ask(Packet(REMOTE_PROGRAM, procedure, Kind.CALL, 0, 0, body))

    async def ask(self, packet: Packet, stream: "asyncio.Queue[Packet] | None" = None) -> Packet:
        """Send a call under a serial of ours and wait for its answer. stream: takes the packets of its stream.

        Raises ConnectionError.
        """
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

    async def list_domains(self, flags: int) -> list[DomainName]:
        """The domains that VIR_CONNECT_LIST_DOMAINS_* chooses."""
        answer = await self.call(Procedure.CONNECT_LIST_ALL_DOMAINS, struct.pack(">II", 1, flags))
        return read_domains(answer.body) if answer.status == Status.OK else []

    async def pass_stream(self, packet: Packet, writer: StreamWriter) -> None:
        """Pass on what a call sends as a stream, and end libvirtd's stream when all of it came."""
        stream: asyncio.Queue[Packet] = asyncio.Queue()
        answer = await self.ask(packet, stream)
        send(writer, packet.reply(answer.body, answer.status))
        part = answer
        while answer.status == Status.OK and (part is answer or part.body):
            part = await stream.get()
            send(writer, replace(part, serial=packet.serial))
        self._streams.pop(answer.serial, None)
        if answer.status == Status.OK and self._writer is not None:
            send(self._writer, replace(part, status=Status.OK, body=b""))

    async def watch(self, packet: Packet, writer: StreamWriter) -> Packet:
        """Let a client hear of events: libvirtd takes one registration, so all clients share it and its number."""
        if self._watch is None:
            self._watch = await self.ask(packet)
        self._watchers.add(writer)
        return packet.reply(self._watch.body, self._watch.status)

    def forget(self, writer: StreamWriter) -> None:
        """Let a client hear of nothing more."""
        self._watchers.discard(writer)

    def rename_next(self, domain: str, event: Event, detail: int | None) -> None:
        """Give the next such event of a domain another detail; None: nobody hears of it."""
        if self._watch is not None:
            self._details[domain, event].append(detail)

    def take_back(self, domain: str, event: Event) -> None:
        """Forget the last renaming of such an event, because it does not happen."""
        if self._details[domain, event]:
            self._details[domain, event].pop()

    async def _take_answers(self, reader: StreamReader) -> None:
        try:
            while True:
                packet = await read_packet(reader)
                if packet.program == KEEPALIVE_PROGRAM and self._writer is not None:
                    send(self._writer, Packet(KEEPALIVE_PROGRAM, KEEPALIVE_PONG, Kind.MESSAGE, 0, Status.OK))
                elif packet.kind == Kind.MESSAGE and packet.procedure == Procedure.DOMAIN_EVENT_CALLBACK_LIFECYCLE:
                    self._deliver(packet)
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
            self._on_end()

    def _deliver(self, packet: Packet) -> None:
        """Pass an event on, with the detail that QEMU's driver would give it."""
        domain = read_domain(packet.body, 4)
        event, _ = _LIFECYCLE.unpack(packet.body[-_LIFECYCLE.size :])
        renamed = self._details.get((domain.uuid, event))
        if renamed:
            detail = renamed.popleft()
            if detail is None:
                return
            packet = replace(packet, body=packet.body[: -_LIFECYCLE.size] + _LIFECYCLE.pack(event, detail))
        for client in self._watchers:
            send(client, packet)


async def read_packet(reader: StreamReader) -> Packet:
    """Read one packet. Raises IncompleteReadError at the end, ConnectionError for anything but a packet."""
    length = await reader.readexactly(4)
    (size,) = struct.unpack(">I", length)
    if not 28 <= size <= LONGEST_PACKET:
        raise ConnectionError(f"a packet of {size} bytes")
    return decode(length + await reader.readexactly(size - 4))


def send(writer: StreamWriter, packet: Packet) -> None:
    """Send a packet, if the other end is still there."""
    if not writer.is_closing():
        writer.write(packet.encode())
