# SPDX-License-Identifier: Apache-2.0
"""OVN's southbound database, which is only read: what hosts have made of the wanted rows.

One question is one connection, and no copy of the database is kept: that holds every flow of every network.
"""

import json
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vgpuctl.errors import OvnUnreachable
from vgpuctl.model.network_seen import Checked, NetworksSeen, PortPlace
from vgpuctl.model.printable import printable
from vgpuctl.ovn.northbound import NorthboundAddress, check_address
from vgpuctl.trusted_files import NAMED, NAMED_SECRET, opened

OWN_NAME = "southbound"
"""The name of the certificate of our own authority with which the southbound database is read."""
_DATABASE = "OVN_Southbound"
_TIMEOUT_S = 10.0
_MOST_HINTS = 128
"""Conditions in one question; the database looks through every flow for each."""
MOST_OF_ANSWER = 16 * 2**20
"""A gateway has some 150 bytes in the answer."""


@dataclass(frozen=True)
class GatewaysSeen:
    """What OVN has of gateways. chassis: names of all chassis. carriers: the chassis of each router port's gateway, by
    the port's name; None where no chassis has claimed it."""

    chassis: frozenset[str]
    carriers: dict[str, str | None]


@dataclass(frozen=True)
class FlowOf:
    """A logical flow. cookie: of its flows on hosts. stage: of OVN's pipeline. match: in OVN's words."""

    cookie: str
    stage: str
    match: str


class Southbound:
    """A southbound database, with the address and the certificate as of the northbound one."""

    def __init__(self, address: NorthboundAddress, *, timeout_s: float = _TIMEOUT_S) -> None:
        self.address = check_address(address, database="southbound")
        self._timeout_s = timeout_s

    def gateways(self) -> GatewaysSeen:
        """Ask which chassis carry the gateways of routers. Raises OvnUnreachable."""
        chassis, ports = self.select(
            ("Chassis", [], ("_uuid", "name")),
            ("Port_Binding", [["type", "==", "chassisredirect"]], ("logical_port", "chassis")),
        )
        with self._reading():
            names = {row["_uuid"][1]: str(row["name"]) for row in chassis}
            carriers = {}
            for row in ports:
                kind, value = row["chassis"]
                name = str(row["logical_port"]).removeprefix("cr-")
                carriers[name] = names.get(value) if kind == "uuid" else None
            return GatewaysSeen(frozenset(names.values()), carriers)

    def networks(self, ports: Sequence[str] | None = None) -> NetworksSeen:
        """Ask where ports are, and what health checks found of them. ports: None for all of VMs. Raises OvnUnreachable.

        Health checks are asked by the chassis of the member itself (Service_Monitor in ovn-sb(5)).
        """
        bindings = [[["type", "==", ""]]] if ports is None else [[["logical_port", "==", one]] for one in ports]
        monitors = [[]] if ports is None else bindings
        answers = self.select(
            ("Chassis", [], ("_uuid", "name")),
            *(("Port_Binding", where, ("logical_port", "chassis", "up")) for where in bindings),
            *(("Service_Monitor", where, ("logical_port", "ip", "port", "protocol", "status")) for where in monitors),
        )
        with self._reading():
            names = {row["_uuid"][1]: str(row["name"]) for row in answers[0]}
            bound = [row for rows in answers[1 : 1 + len(bindings)] for row in rows]
            monitored = [row for rows in answers[1 + len(bindings) :] for row in rows]
            places = {}
            for row in bound:
                kind, value = row["chassis"]
                carrier = names.get(value) if kind == "uuid" else None
                places[str(row["logical_port"])] = PortPlace(carrier, is_up=row["up"] is True)
            checks = {}
            for row in monitored:
                protocol, status = _text(row["protocol"]) or "tcp", _text(row["status"])
                address = str(row["ip"]).strip("[]")
                checks[Checked(str(row["logical_port"]), address, int(row["port"]), protocol)] = status
            return NetworksSeen(places, checks)

    def flows(self, uuids: Sequence[str]) -> dict[str, list[FlowOf]]:
        """The logical flows that northd made of rows of the northbound database, by their UUIDs. Raises OvnUnreachable.

        northd notes the first 32 bits of the UUID with each flow, as ovn-detrace(1) reads it.
        """
        hints = {uuid: uuid[:8] for uuid in uuids}
        found: dict[str, list[FlowOf]] = {}
        for begin in range(0, len(uuids), _MOST_HINTS):
            part = list(uuids[begin : begin + _MOST_HINTS])
            asked = [[["external_ids", "includes", ["map", [["stage-hint", hints[one]]]]]] for one in part]
            answers = self.select(*(("Logical_Flow", where, ("_uuid", "external_ids", "match")) for where in asked))
            with self._reading():
                for uuid, rows in zip(part, answers, strict=True):
                    ids = [dict(row["external_ids"][1]) for row in rows]
                    found[uuid] = [
                        FlowOf(str(row["_uuid"][1])[:8], str(its.get("stage-name", "")), str(row["match"]))
                        for row, its in zip(rows, ids, strict=True)
                    ]
        return found

    def select(self, *questions: tuple[str, Sequence[object], Sequence[str]]) -> list[list[dict[str, Any]]]:
        """Ask for rows of tables, each with conditions and columns (RFC 7047, 5.2.2). The first server that answers
        tells them. Raises OvnUnreachable."""
        wanted: list[object] = [
            {"op": "select", "table": table, "where": list(where), "columns": list(columns)}
            for table, where, columns in questions
        ]
        failures: list[Exception] = []
        for remote in self.address.remotes:
            try:
                reply = self._ask(remote, {"method": "transact", "params": [_DATABASE, *wanted], "id": 1})
                return [list(one["rows"]) for one in reply["result"]]
            except (OSError, ValueError, KeyError, TypeError, ssl.SSLError) as failure:
                failures.append(failure)
        raise self._unreachable(failures[-1])

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, KeyError, TypeError, IndexError) as failure:
            raise self._unreachable(failure) from failure

    def _unreachable(self, failure: Exception) -> OvnUnreachable:
        said = failure.strerror if isinstance(failure, OSError) and failure.strerror else ""
        if isinstance(failure, KeyError | TypeError | IndexError):
            said = "its answer is not that of a southbound database"
        elif isinstance(failure, TimeoutError):
            said = "no answer in time"
        return OvnUnreachable(
            f"OVN's southbound database {self.address.remote} does not answer: {said or failure}",
            hint="check VGPUCTL_OVN_SOUTHBOUND, that ovn-central runs, and that this machine may reach its database",
        )

    def _ask(self, remote: str, request: dict[str, Any]) -> dict[str, Any]:
        deadline = time.monotonic() + self._timeout_s
        with self._connect(remote) as connection:
            connection.sendall(json.dumps(request).encode())
            messages = _messages(connection, deadline)
            answer = next(one for one in messages if one.get("id") == request["id"])
        error = answer.get("error")
        if error is not None:
            said = error.get("details") if isinstance(error, dict) else error
            raise ValueError(f"it answers {printable(str(said)[:200])}")
        return answer

    def _connect(self, remote: str) -> socket.socket:
        kind, _, rest = remote.partition(":")
        if kind == "unix":
            plain = socket.socket(socket.AF_UNIX)
            plain.settimeout(self._timeout_s)
            plain.connect(rest)
            return plain
        host, _, port = rest.rpartition(":")
        plain = socket.create_connection((host.strip("[]"), int(port)), timeout=self._timeout_s)
        if kind != "ssl":
            return plain
        address = self.address
        assert address.private_key and address.certificate and address.authority
        # As Open vSwitch does: whoever has a certificate of this authority is believed, by whatever name.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        with opened(address.authority, NAMED) as authority:
            context.load_verify_locations(authority.name)
        with opened(address.certificate, NAMED) as certificate, opened(address.private_key, NAMED_SECRET) as key:
            context.load_cert_chain(certificate.name, key.name)
        return context.wrap_socket(plain)


def _text(value: object) -> str:
    """A text that may be missing, which is an empty set."""
    return value if isinstance(value, str) else ""


def _messages(connection: socket.socket, deadline: float) -> Iterator[dict[str, Any]]:
    """Read JSON objects, one behind the other. Raises OSError when one is too long, comes too late or does not end."""
    reader = _ObjectReader()
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no answer in time")
        connection.settimeout(left_s)
        part = connection.recv(65536)
        if not part:
            raise ConnectionError("it hung up")
        for text in reader.feed(part):
            found = json.loads(text)
            if not isinstance(found, dict):
                raise ValueError("its answer is not a JSON object")
            yield found


class _ObjectReader:
    """Finds the ends of JSON objects in what comes in parts; each byte is looked at once."""

    def __init__(self) -> None:
        self._parts = bytearray()
        self._looked = self._depth = 0
        self._in_text = self._is_escaped = False

    def feed(self, part: bytes) -> Iterator[bytes]:
        """The objects whose end has come. Raises ValueError for one that is too long."""
        self._parts += part
        while self._looked < len(self._parts):
            byte = self._parts[self._looked]
            self._looked += 1
            if self._is_escaped:
                self._is_escaped = False
            elif self._in_text:
                self._is_escaped = byte == 0x5C
                self._in_text = byte != 0x22
            elif byte == 0x22:
                self._in_text = True
            elif byte in b"{[":
                self._depth += 1
            elif byte in b"}]":
                self._depth -= 1
                if self._depth <= 0:
                    text = bytes(self._parts[: self._looked])
                    del self._parts[: self._looked]
                    self._looked = self._depth = 0
                    yield text
        if len(self._parts) > MOST_OF_ANSWER:
            raise ValueError(f"it sent more than {MOST_OF_ANSWER >> 20} MiB for one answer")
