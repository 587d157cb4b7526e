# SPDX-License-Identifier: Apache-2.0
"""ICMP echo with packets that may not be fragmented: what the way to another host carries (RFC 792, ip(7))."""

import os
import select
import socket
import struct
import time
from typing import Dict, Optional, Sequence, Tuple

from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

_HEADERS = 28  # of IPv4 without options, and of ICMP
_REQUEST, _REPLY = 8, 0
# Linux include/uapi/linux/in.h; Python has no names for them before 3.13.
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3
_LARGEST = 65535


def ask(remotes: Sequence[str], sizes: Sequence[int], *, timeout_s: float) -> Dict[str, int]:
    """Send every size to every address at once and wait for the answers. Returns the largest answered, 0 for none.

    Raises Problem `echo-refused` when the kernel gives no raw socket.
    """
    carried = dict.fromkeys(remotes, 0)
    identity = os.getpid() & 0xFFFF
    waiting = set()
    try:
        sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    except OSError as error:
        raise Problem(ProblemCode.ECHO_REFUSED, f"no raw socket for echo requests: {error.strerror}") from error
    with sender:
        sender.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
        sender.setblocking(False)
        for remote in remotes:
            for number, size in enumerate(sizes):
                try:
                    sender.sendto(_request(identity, number, size - _HEADERS), (remote, 0))
                except OSError:
                    continue  # too large for the interface, or no way there
                waiting.add((remote, number))
        end = time.monotonic() + timeout_s
        while waiting:
            left = end - time.monotonic()
            if left <= 0 or not select.select([sender], [], [], left)[0]:
                break
            data, address = sender.recvfrom(_LARGEST)
            answered = _reply(data, identity)
            if answered is not None and (address[0], answered) in waiting:
                waiting.discard((address[0], answered))
                carried[address[0]] = max(carried[address[0]], sizes[answered])
    return carried


def _request(identity: int, number: int, payload_bytes: int) -> bytes:
    payload = bytes(payload_bytes)
    checksum = _checksum(struct.pack("!BBHHH", _REQUEST, 0, 0, identity, number) + payload)
    return struct.pack("!BBHHH", _REQUEST, 0, checksum, identity, number) + payload


def _reply(packet: bytes, identity: int) -> Optional[int]:
    """The number of the request that a packet answers; None when it is another's."""
    header = (packet[0] & 0xF) * 4
    fields: Tuple[int, ...] = struct.unpack_from("!BBHHH", packet, header)
    return fields[4] if (fields[0], fields[3]) == (_REPLY, identity) else None


def _checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
