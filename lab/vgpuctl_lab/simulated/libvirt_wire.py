# SPDX-License-Identifier: Apache-2.0
"""libvirt's RPC on the wire: packets and the few XDR shapes the lab looks into (libvirt: src/rpc/virnetprotocol.x)."""

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

REMOTE_PROGRAM = 0x20008086
QEMU_PROGRAM = 0x20008087
KEEPALIVE_PROGRAM = 0x6B656570
KEEPALIVE_PING, KEEPALIVE_PONG = 1, 2
VERSION = 1
LONGEST_PACKET = 32 << 20
_HEADER = struct.Struct(">7I")
_VIR_FROM_QEMU = 10
_VIR_ERR_ERROR = 2


class Kind(IntEnum):
    """The type of a packet."""

    CALL = 0
    REPLY = 1
    MESSAGE = 2
    STREAM = 3


class Status(IntEnum):
    """How a call ended, or what a stream's packet means."""

    OK = 0
    ERROR = 1
    CONTINUE = 2


class ErrorCode(IntEnum):
    """Codes of errors (libvirt: include/libvirt/virterror.h)."""

    INTERNAL_ERROR = 1
    OPERATION_FAILED = 9
    SYSTEM_ERROR = 38
    NO_DOMAIN = 42
    OPERATION_INVALID = 55
    CONFIG_UNSUPPORTED = 67
    OPERATION_TIMEOUT = 68
    ARGUMENT_UNSUPPORTED = 74
    OPERATION_ABORTED = 78
    MIGRATE_UNSAFE = 81
    OPERATION_UNSUPPORTED = 84
    MIGRATE_FINISH_OK = 93
    DEVICE_MISSING = 99


class Event(IntEnum):
    """Kinds of lifecycle events of domains (libvirt: virDomainEventType)."""

    DEFINED = 0
    UNDEFINED = 1
    STARTED = 2
    SUSPENDED = 3
    RESUMED = 4
    STOPPED = 5


class Procedure(IntEnum):
    """Procedures of the remote program that the lab treats specially (libvirt: src/remote/remote_protocol.x)."""

    CONNECT_OPEN = 1
    CONNECT_CLOSE = 2
    CONNECT_GET_CAPABILITIES = 7
    DOMAIN_CREATE = 9
    DOMAIN_CREATE_XML = 10
    DOMAIN_DEFINE_XML = 11
    DOMAIN_DESTROY = 12
    DOMAIN_GET_XML_DESC = 14
    DOMAIN_RESUME = 28
    DOMAIN_SHUTDOWN = 33
    DOMAIN_SUSPEND = 34
    DOMAIN_UNDEFINE = 35
    CONNECT_GET_HOSTNAME = 59
    CONNECT_SUPPORTS_FEATURE = 60
    AUTH_LIST = 66
    STORAGE_POOL_LOOKUP_BY_NAME = 84
    STORAGE_POOL_GET_XML_DESC = 88
    STORAGE_VOL_CREATE_XML = 93
    STORAGE_VOL_DELETE = 94
    STORAGE_VOL_LOOKUP_BY_NAME = 95
    STORAGE_VOL_LOOKUP_BY_PATH = 97
    STORAGE_VOL_CREATE_XML_FROM = 125
    CONNECT_GET_LIB_VERSION = 157
    DOMAIN_GET_JOB_INFO = 163
    DOMAIN_ABORT_JOB = 164
    DOMAIN_MIGRATE_SET_MAX_DOWNTIME = 166
    DOMAIN_MANAGED_SAVE = 182
    DOMAIN_HAS_MANAGED_SAVE_IMAGE = 183
    DOMAIN_MANAGED_SAVE_REMOVE = 184
    DOMAIN_SNAPSHOT_NUM = 187
    DOMAIN_CREATE_WITH_FLAGS = 196
    STORAGE_VOL_UPLOAD = 208
    STORAGE_VOL_DOWNLOAD = 209
    DOMAIN_SCREENSHOT = 211
    DOMAIN_GET_STATE = 212
    DOMAIN_UNDEFINE_FLAGS = 231
    DOMAIN_DESTROY_FLAGS = 234
    DOMAIN_SHUTDOWN_FLAGS = 258
    CONNECT_LIST_ALL_DOMAINS = 273
    NODE_GET_CPU_MAP = 293
    DOMAIN_GET_JOB_STATS = 298
    DOMAIN_MIGRATE_BEGIN3_PARAMS = 302
    DOMAIN_MIGRATE_PREPARE3_PARAMS = 303
    DOMAIN_MIGRATE_PERFORM3_PARAMS = 305
    DOMAIN_MIGRATE_FINISH3_PARAMS = 306
    DOMAIN_MIGRATE_CONFIRM3_PARAMS = 307
    CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY = 316
    CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY = 317
    DOMAIN_EVENT_CALLBACK_LIFECYCLE = 318
    CONNECT_GET_DOMAIN_CAPABILITIES = 342
    CONNECT_GET_ALL_DOMAIN_STATS = 344
    DOMAIN_DEFINE_XML_FLAGS = 350
    CONNECT_REGISTER_CLOSE_CALLBACK = 360
    CONNECT_UNREGISTER_CLOSE_CALLBACK = 361
    DOMAIN_START_DIRTY_RATE_CALC = 427
    DOMAIN_MIGRATE_GET_MAX_DOWNTIME = 387
    DOMAIN_MANAGED_SAVE_GET_XML_DESC = 388
    DOMAIN_MANAGED_SAVE_DEFINE_XML = 389
    DOMAIN_ABORT_JOB_FLAGS = 442


@dataclass(frozen=True)
class Packet:
    """One packet; `status` is a number of Status."""

    program: int
    procedure: int
    kind: int
    serial: int
    status: int
    body: bytes = b""
    version: int = VERSION

    @property
    def is_upload(self) -> bool:
        """True if it asks to fill a volume."""
        return self.program == REMOTE_PROGRAM and self.procedure == Procedure.STORAGE_VOL_UPLOAD

    @property
    def is_copy(self) -> bool:
        """True if it asks for a whole volume, to be copied; the test driver refuses to read a part of one."""
        if self.program != REMOTE_PROGRAM or self.procedure != Procedure.STORAGE_VOL_DOWNLOAD:
            return False
        offset, length, _flags = struct.unpack(">QQI", self.body[-20:])
        return (offset, length) == (0, 0)

    @property
    def is_picture(self) -> bool:
        """True if it asks for a picture of a guest's screen, which comes as a stream."""
        return self.program == REMOTE_PROGRAM and self.procedure == Procedure.DOMAIN_SCREENSHOT

    def encode(self) -> bytes:
        """The bytes, with their length before them."""
        return (
            _HEADER.pack(
                _HEADER.size + len(self.body),
                self.program,
                self.version,
                self.procedure,
                self.kind,
                self.serial,
                self.status,
            )
            + self.body
        )

    def reply(self, body: bytes = b"", status: int = Status.OK) -> "Packet":
        """The answer to this call."""
        return replace(self, kind=Kind.REPLY, status=status, body=body)

    def error(self, message: str, code: ErrorCode = ErrorCode.INTERNAL_ERROR) -> "Packet":
        """The answer that refuses this call, as QEMU's driver would."""
        body = struct.pack(">II", code, _VIR_FROM_QEMU) + struct.pack(">I", 1) + text(message)
        # level; no domain; three texts and two numbers that are not there; no network
        body += struct.pack(">I", _VIR_ERR_ERROR) + struct.pack(">I", 0) + struct.pack(">III", 0, 0, 0)
        body += struct.pack(">II", 0, 0) + struct.pack(">I", 0)
        return self.reply(body, Status.ERROR)


def decode(data: bytes) -> Packet:
    """Read a packet, its length included. Raises struct.error."""
    _, program, version, procedure, kind, serial, status = _HEADER.unpack(data[: _HEADER.size])
    return Packet(program, procedure, kind, serial, status, data[_HEADER.size :], version)


# Numbers of virTypedParameterType.
INT, LLONG, ULLONG = 1, 3, 4
_FORMATS = {INT: ">i", 2: ">I", LLONG: ">q", ULLONG: ">Q", 5: ">d", 6: ">i"}
_STRING = 7


class Reader:
    """Reads the fields of a body one after the other. Raises ValueError, struct.error."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._offset = 0

    def number(self, kind: str = ">I") -> int:
        """A number, in struct's format."""
        (value,) = struct.unpack_from(kind, self._body, self._offset)
        self._offset += struct.calcsize(kind)
        return int(value)

    def text(self) -> str:
        """A string."""
        value, self._offset = read_text(self._body, self._offset)
        return value

    def optional_text(self) -> str | None:
        """A string that may be missing."""
        return self.text() if self.number() else None

    def domain(self) -> "DomainName":
        """A remote_nonnull_domain."""
        domain = read_domain(self._body, self._offset)
        self._offset += len(domain.encoded)
        return domain

    def parameters(self) -> dict[str, str | int]:
        """Typed parameters; the last one of a name counts."""
        found: dict[str, str | int] = {}
        for _ in range(self.number()):
            name, kind = self.text(), self.number()
            found[name] = self.text() if kind == _STRING else self.number(_FORMATS[kind])
        return found


def parameters(values: Sequence[tuple[str, int, int]]) -> bytes:
    """Encode typed parameters that are numbers: (name, INT, LLONG or ULLONG, value)."""
    body = struct.pack(">I", len(values))
    for name, kind, value in values:
        body += text(name) + struct.pack(">I", kind) + struct.pack(_FORMATS[kind], value)
    return body


def optional_text(value: str | None) -> bytes:
    """Encode a string that may be missing."""
    return struct.pack(">I", 0) if value is None else struct.pack(">I", 1) + text(value)


@dataclass(frozen=True)
class DomainName:
    """A domain as calls name it: a remote_nonnull_domain. encoded: its bytes."""

    name: str
    uuid: str
    encoded: bytes


def read_domain(body: bytes, offset: int = 0) -> DomainName:
    """Read the domain at the beginning of a body. Raises ValueError, struct.error."""
    name, end = read_text(body, offset)
    return DomainName(name, str(uuid.UUID(bytes=body[end : end + 16])), body[offset : end + 20])


def read_domains(body: bytes) -> list[DomainName]:
    """Read the reply of CONNECT_LIST_ALL_DOMAINS."""
    (count,) = struct.unpack_from(">I", body)
    found, offset = [], 4
    for _ in range(count):
        domain = read_domain(body, offset)
        found.append(domain)
        offset += len(domain.encoded)
    return found


def read_text(body: bytes, offset: int = 0) -> tuple[str, int]:
    """Read an XDR string: the text, and where the next field begins."""
    (length,) = struct.unpack_from(">I", body, offset)
    start = offset + 4
    if length > len(body) - start:
        raise ValueError("a text that is longer than its packet")
    return body[start : start + length].decode(), start + length + -length % 4


def text(value: str) -> bytes:
    """Encode an XDR string."""
    data = value.encode()
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def cpu_map(count: int, asked: bytes) -> bytes:
    """The body of an answer to NODE_GET_CPU_MAP with so many CPUs, all online. asked: the body of the call."""
    needs_map, _needs_online, _flags = struct.unpack(">iiI", asked)
    cpus = ((1 << count) - 1).to_bytes((count + 7) // 8, "little") if needs_map else b""
    return struct.pack(">I", len(cpus)) + cpus + bytes(-len(cpus) % 4) + struct.pack(">Ii", count, count)
