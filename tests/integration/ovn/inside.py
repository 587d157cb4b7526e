# SPDX-License-Identifier: Apache-2.0
"""What runs in an endpoint's namespace, with the standard library alone: server, probes, DHCPv6, advertisements."""

import fcntl
import json
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable

_LIMIT_S = 2.0
_SILENCE_S = 1.0
_ECHO_PORT = 53
_ECHO_REQUEST, _ECHO_REPLY = {4: 8, 6: 128}, {4: 0, 6: 129}
_SIOCGIFHWADDR = 0x8927
_SOLICIT, _REQUEST = 1, 3
_CLIENT_ID, _SERVER_ID, _IA_NA, _IA_ADDRESS, _OPTION_REQUEST, _ELAPSED, _DNS = 1, 2, 3, 5, 6, 8, 23


def serve(name: str, *ports: str) -> None:
    """Answer each connection, of either IP version, with the server's name and the peer's address; echo UDP."""
    echo = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    echo.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    echo.bind(("::", _ECHO_PORT))
    listening = [echo]
    for port in ports:
        one = socket.create_server(("::", int(port)), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
        listening.append(one)
    _tell("ready")
    while True:
        for one in select.select(listening, [], [])[0]:
            if one is echo:
                one.sendto(*one.recvfrom(200))
                continue
            connection, peer = one.accept()
            with connection:
                connection.sendall(f"{name} {peer[0].removeprefix('::ffff:')}".encode())


def ask(protocol: str, address: str, port: str) -> None:
    """Send something to a server. Prints `answered`, `refused`, or `silence`."""
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as one:
        one.settimeout(_SILENCE_S)
        try:
            one.connect((address, int(port)))
            one.send(b"hello")
            _tell("answered" if one.recv(200) else "ended")
        except ConnectionRefusedError:
            _tell("refused")
        except TimeoutError:
            _tell("silence")


def hold(address: str, port: str) -> None:
    """Keep one connection open: for each line of standard input, send it and print the answer, or `silence`."""
    with socket.create_connection((address, int(port)), timeout=_LIMIT_S) as one:
        one.settimeout(_LIMIT_S)
        for line in sys.stdin:
            one.sendall(line.encode())
            try:
                _tell(one.recv(200).decode().strip() or "ended")
            except OSError:
                _tell("silence")


def answer(name: str, port: str) -> None:
    """Answer each line of each connection with the server's name, and keep the connections open."""

    def talk(connection: socket.socket) -> None:
        with connection:
            while connection.recv(200):
                connection.sendall(f"{name}\n".encode())

    with socket.create_server(("0.0.0.0", int(port))) as server:
        _tell("ready")
        while True:
            threading.Thread(target=talk, args=(server.accept()[0],), daemon=True).start()


def flood(address: str, count: str) -> None:
    """Send many packets of UDP that nobody answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _ in range(int(count)):
            one.sendto(b"x", (address, _ECHO_PORT))


def probe(wanted: str) -> None:
    """Try all of these at once: [address, port, source or null], port 0 for an echo request. Prints the answers."""
    asked = json.loads(wanted)
    answers: list[str | None] = [None] * len(asked)

    def ask(number: int) -> None:
        address, port, source = asked[number]
        try:
            answers[number] = _connect(address, port, source) if port else _echo(address, number, source)
        except OSError:
            answers[number] = None

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(asked))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    _tell(json.dumps(answers))


def _connect(address: str, port: int, source: str | None) -> str:
    bound = None if source is None else (source, 0)
    with socket.create_connection((address, port), timeout=_LIMIT_S, source_address=bound) as connection:
        connection.settimeout(_LIMIT_S)
        return connection.recv(200).decode()


def _echo(address: str, number: int, source: str | None) -> str | None:
    version = 6 if ":" in address else 4
    family, protocol = (socket.AF_INET6, 58) if version == 6 else (socket.AF_INET, 1)
    packet = bytearray(struct.pack("!BBHHH", _ECHO_REQUEST[version], 0, 0, 0x7667, number))
    if version == 4:
        packet[2:4] = struct.pack("!H", _checksum(packet))
    with socket.socket(family, socket.SOCK_RAW, protocol) as raw:
        if source is not None:
            raw.bind((source, 0))
        deadline = time.monotonic() + _LIMIT_S
        raw.sendto(packet, (address, 0))
        while (rest := deadline - time.monotonic()) > 0:
            raw.settimeout(rest)
            answer, peer = raw.recvfrom(200)
            body = answer if version == 6 else answer[(answer[0] & 15) * 4 :]
            if peer[0] == address and body[0] == _ECHO_REPLY[version] and body[4:8] == packet[4:8]:
                return "echo"
    return None


def _checksum(packet: bytes | bytearray) -> int:
    total: int = sum(struct.unpack(f"!{len(packet) // 2}H", packet))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def lease(interface: str) -> None:
    """Get an address by DHCPv6 in four messages (RFC 8415). Prints the address, then the resolvers."""
    number = socket.if_nametoindex(interface)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as udp:
        name = struct.pack("256s", interface.encode())
        mac = fcntl.ioctl(udp, _SIOCGIFHWADDR, name)[18:24]
        udp.bind(("::", 546))
        own = _option(_CLIENT_ID, b"\x00\x03\x00\x01" + mac) + _option(_OPTION_REQUEST, struct.pack("!H", _DNS))
        own += _option(_ELAPSED, b"\x00\x00") + _option(_IA_NA, struct.pack("!III", 7, 0, 0))
        advertised = _exchange(udp, number, _SOLICIT, own)
        again = own.replace(_option(_IA_NA, struct.pack("!III", 7, 0, 0)), _option(_IA_NA, advertised[_IA_NA]))
        leased = _exchange(udp, number, _REQUEST, again + _option(_SERVER_ID, advertised[_SERVER_ID]))
    inner = _options(leased[_IA_NA][12:])
    resolvers = leased.get(_DNS, b"")
    every = [resolvers[at : at + 16] for at in range(0, len(resolvers), 16)]
    _tell(json.dumps([socket.inet_ntop(socket.AF_INET6, one) for one in (inner[_IA_ADDRESS][:16], *every)]))


def _exchange(udp: socket.socket, number: int, kind: int, options: bytes) -> dict[int, bytes]:
    transaction = bytes((1, 2, kind))
    for _attempt in range(10):
        udp.sendto(bytes((kind,)) + transaction + options, ("ff02::1:2", 547, 0, number))
        udp.settimeout(1)
        try:
            answer = udp.recv(1500)
        except TimeoutError:
            continue
        if answer[1:4] == transaction:
            return _options(answer[4:])
    raise SystemExit("no DHCPv6 server answers")


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("!HH", code, len(value)) + value


def _options(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= 4:
        code, length = struct.unpack("!HH", data[:4])
        found[code], data = data[4 : 4 + length], data[4 + length :]
    return found


def advertise(interface: str, prefix: str) -> None:
    """Send router advertisements as a hostile guest does."""
    number = socket.if_nametoindex(interface)
    option = struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 1800, 1800, 0) + socket.inet_pton(socket.AF_INET6, prefix)
    message = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + option
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58) as raw:
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        for _ in range(3):
            raw.sendto(message, ("ff02::1", 0, 0, number))
            time.sleep(0.1)


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"serve": serve, "probe": probe, "lease": lease, "advertise": advertise}
    commands |= {"ask": ask, "flood": flood, "hold": hold, "answer": answer}
    commands[sys.argv[1]](*sys.argv[2:])
