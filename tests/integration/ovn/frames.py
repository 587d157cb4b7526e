# SPDX-License-Identifier: Apache-2.0
"""Packets of a guest without a kernel: made and read as bytes, on an interface of a real Open vSwitch's dummy
datapath."""

import ipaddress
import struct
from dataclasses import dataclass
from pathlib import Path

A, PTR, AAAA, ANY = 1, 12, 28, 255
_IPV4, _ARP, _UDP, _ICMP, _DNS_PORT = 0x0800, 0x0806, 17, 1, 53


@dataclass(frozen=True)
class Answer:
    """An answer to a DNS query. records: addresses and names in it."""

    number: int
    code: int
    records: tuple[str, ...]


def mac_bytes(text: str) -> bytes:
    """A MAC address as in a frame."""
    return bytes.fromhex(text.replace(":", ""))


def dns_query(name: str, kind: int, number: int, *, macs: tuple[str, str], addresses: tuple[str, str]) -> bytes:
    """A guest's query. macs, addresses: of the guest and of where it sends the query to."""
    labels = b"".join(bytes([len(one)]) + one.encode() for one in name.split("."))
    query = struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", kind, 1)
    udp = struct.pack(">4H", 40000 + number, _DNS_PORT, 8 + len(query), 0) + query
    return _frame(macs, _IPV4, _ipv4(addresses, _UDP, udp))


def echo_request(number: int, *, macs: tuple[str, str], addresses: tuple[str, str]) -> bytes:
    """A ping whose sequence number is this."""
    body = struct.pack(">2H", 7, number) + b"ping of a test"
    icmp = struct.pack(">2BH", 8, 0, _checksum(struct.pack(">2BH", 8, 0, 0) + body)) + body
    return _frame(macs, _IPV4, _ipv4(addresses, _ICMP, icmp))


def arp_request(*, mac: str, address: str, wanted: str) -> bytes:
    """The question who has an address."""
    sender, asked = (ipaddress.IPv4Address(one).packed for one in (address, wanted))
    body = struct.pack(">HHBBH", 1, _IPV4, 6, 4, 1) + mac_bytes(mac) + sender + bytes(6) + asked
    return _frame((mac, "ff:ff:ff:ff:ff:ff"), _ARP, body)


def frames(pcap: Path) -> list[bytes]:
    """The frames of a file of Open vSwitch's `tx_pcap`."""
    content, found, place = pcap.read_bytes(), [], 24
    while place + 16 <= len(content):
        (length,) = struct.unpack_from("<I" if content[:4] == b"\xd4\xc3\xb2\xa1" else ">I", content, place + 8)
        if place + 16 + length > len(content):
            break
        found.append(content[place + 16 : place + 16 + length])
        place += 16 + length
    return found


def dns_answers(pcap: Path) -> list[Answer]:
    """The answers to DNS queries that a guest got."""
    found = []
    for frame in frames(pcap):
        if frame[12:14] == b"\x08\x00" and frame[23] == _UDP and frame[34:36] == struct.pack(">H", _DNS_PORT):
            found.append(_answer(frame[42:]))
    return found


def arp_answers(pcap: Path) -> list[tuple[str, str]]:
    """Who has which address, as a guest was told: addresses with their MACs."""
    told = [frame for frame in frames(pcap) if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\x02"]
    return [(str(ipaddress.IPv4Address(frame[28:32])), frame[22:28].hex(":")) for frame in told]


def echo_numbers(pcap: Path) -> list[int]:
    """The sequence numbers of the pings that came."""
    return [
        int.from_bytes(frame[40:42], "big")
        for frame in frames(pcap)
        if frame[12:14] == b"\x08\x00" and frame[23] == _ICMP and frame[34] == 8
    ]


def _answer(message: bytes) -> Answer:
    number, flags, questions, answers = struct.unpack_from(">4H", message)
    place = 12
    for _ in range(questions):
        place = _name(message, place)[1] + 4
    records = []
    for _ in range(answers):
        _, place = _name(message, place)
        kind, _class, _ttl, length = struct.unpack_from(">HHIH", message, place)
        place += 10
        data = message[place : place + length]
        records.append(_name(message, place)[0] if kind == PTR else str(ipaddress.ip_address(data)))
        place += length
    return Answer(number, flags & 0xF, tuple(records))


def _name(message: bytes, place: int) -> tuple[str, int]:
    labels, end = [], None
    while message[place]:
        if message[place] & 0xC0:
            end = end or place + 2
            place = int.from_bytes(message[place : place + 2], "big") & 0x3FFF
            continue
        labels.append(message[place + 1 : place + 1 + message[place]].decode())
        place += 1 + message[place]
    return ".".join(labels), end or place + 1


def _frame(macs: tuple[str, str], kind: int, body: bytes) -> bytes:
    return mac_bytes(macs[1]) + mac_bytes(macs[0]) + struct.pack(">H", kind) + body


def _ipv4(addresses: tuple[str, str], protocol: int, body: bytes) -> bytes:
    source, target = (ipaddress.IPv4Address(one).packed for one in addresses)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 64, protocol, 0) + source + target
    return head[:10] + struct.pack(">H", _checksum(head)) + head[12:] + body


def _checksum(data: bytes) -> int:
    even = data + bytes(len(data) % 2)
    total: int = sum(struct.unpack(f">{len(even) // 2}H", even))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
