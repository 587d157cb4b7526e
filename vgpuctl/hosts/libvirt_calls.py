# SPDX-License-Identifier: Apache-2.0
"""Calls of libvirt's protocol that wait for their answer, found in the bytes of one connection.

libvirt's client waits without a limit for an answer; its keep-alive ends the wait only when the whole daemon is silent,
not when one call hangs. Source: src/rpc/virnetprotocol.x and src/remote/remote_protocol.x.
"""

import math
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = struct.Struct(">IIIIiIi")
_REMOTE_PROGRAM = 0x20008086
_PROC_CONNECT_CLOSE = 2
_CALL, _REPLY, _STREAM = 0, 1, 3
_OK, _ERROR, _CONTINUE = 0, 1, 2
_VIR_ERR_RPC, _VIR_FROM_RPC, _VIR_ERR_ERROR = 39, 7, 2
# Calls that pin a guest's memory or write it to a disk, wait for its end, or write, copy or remove volumes.
_WORK = {
    182: "DOMAIN_MANAGED_SAVE",
    303: "DOMAIN_MIGRATE_PREPARE3_PARAMS",
    9: "DOMAIN_CREATE",
    10: "DOMAIN_CREATE_XML",
    12: "DOMAIN_DESTROY",
    196: "DOMAIN_CREATE_WITH_FLAGS",
    234: "DOMAIN_DESTROY_FLAGS",
    76: "STORAGE_POOL_CREATE_XML",
    78: "STORAGE_POOL_CREATE",
    83: "STORAGE_POOL_REFRESH",
    93: "STORAGE_VOL_CREATE_XML",
    94: "STORAGE_VOL_DELETE",
    125: "STORAGE_VOL_CREATE_XML_FROM",
}
# Sends a guest's memory and disks away: nobody can say how long that takes. Who calls it sees to its end.
_ENDLESS = {305: "DOMAIN_MIGRATE_PERFORM3_PARAMS"}
WORK_FACTOR = 60
"""Calls that do such work may take so many times as long as the others."""


class _Header(NamedTuple):
    length: int
    program: int
    version: int
    procedure: int
    kind: int
    serial: int
    status: int


class Overdue(NamedTuple):
    """A call without an answer. answer: the packet that ends it with an error for libvirt's client."""

    problem: str
    answer: bytes


class PendingCalls:
    """The calls of one connection. Give it every byte of both directions; answer_s: the limit of a plain call."""

    def __init__(self, answer_s: float) -> None:
        self._answer_s = answer_s
        self._from_client, self._from_daemon = _Headers(), _Headers()
        self._due: dict[int, tuple[float, float, _Header]] = {}
        self._last: _Header | None = None

    def sent(self, data: bytes) -> None:
        """Note what the client has sent: a call, or the end of a stream, waits for an answer."""
        for header in self._from_client.of(data):
            self._last = header
            is_end = header.kind == _STREAM and header.status == _OK
            if header.kind == _CALL or is_end:
                is_work = is_end or (header.program == _REMOTE_PROGRAM and header.procedure in _WORK)
                is_endless = header.program == _REMOTE_PROGRAM and header.procedure in _ENDLESS
                limit_s = math.inf if is_endless else self._answer_s * (WORK_FACTOR if is_work else 1)
                self._due[header.serial] = (time.monotonic() + limit_s, limit_s, header)

    def received(self, data: bytes) -> None:
        """Note what the daemon has sent."""
        for header in self._from_daemon.of(data):
            if header.kind == _REPLY or (header.kind == _STREAM and header.status != _CONTINUE):
                self._due.pop(header.serial, None)

    def overdue(self) -> Overdue | None:
        """The call that has waited longer than it may, None when there is none."""
        now = time.monotonic()
        for due, limit_s, header in self._due.values():
            if due < now:
                problem = f"libvirt has not answered call {header.procedure} within {limit_s:g} s"
                return Overdue(problem, _error(header, problem))
        return None

    @property
    def has_said_goodbye(self) -> bool:
        """True if the client's last message was its goodbye."""
        last = self._last
        return last is not None and (last.length, last.program, last.procedure, last.kind) == (
            _HEADER.size,
            _REMOTE_PROGRAM,
            _PROC_CONNECT_CLOSE,
            _CALL,
        )


class _Headers:
    """The headers of the packets in one direction's bytes, however these are cut into pieces."""

    def __init__(self) -> None:
        self._begun = b""
        self._left = 0

    def of(self, data: bytes) -> Iterator[_Header]:
        """Skip the bodies and give each header once it is complete."""
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            part = data[at : at + _HEADER.size - len(self._begun)]
            at += len(part)
            self._begun += part
            if len(self._begun) == _HEADER.size:
                header = _Header(*_HEADER.unpack(self._begun))
                self._begun, self._left = b"", max(0, header.length - _HEADER.size)
                yield header


def _error(call: _Header, problem: str) -> bytes:
    """The answer that ends a call with an error (virNetMessageError)."""
    text = problem.encode()
    said = struct.pack(">III", _VIR_ERR_RPC, _VIR_FROM_RPC, 1) + struct.pack(">I", len(text)) + text
    said += bytes(-len(text) % 4)
    # level; no domain; three texts and two numbers that are not there; no network
    said += struct.pack(">II", _VIR_ERR_ERROR, 0) + bytes(12) + bytes(8) + bytes(4)
    kind = _REPLY if call.kind == _CALL else _STREAM
    length = _HEADER.size + len(said)
    return _HEADER.pack(length, call.program, call.version, call.procedure, kind, call.serial, _ERROR) + said
