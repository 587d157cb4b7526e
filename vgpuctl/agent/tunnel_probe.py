# SPDX-License-Identifier: Apache-2.0
"""Packets as a tunnel has them, to see whether they reach the other end: Geneve (RFC 8926), VXLAN (RFC 7348).

They carry a frame of an experimental type in a network number that OVN never assigns. Open vSwitch at the other end
counts them for its tunnel and drops them. A firewall that refuses them answers with ICMP.
"""

import os
import socket
import struct
import time
from typing import Dict, Sequence

from vgpuctl.agent.wire.ovn import PROBE_PACKETS

PORTS = {"geneve": 6081, "vxlan": 4789}
_NETWORK = 0xFFFFFE
# IEEE 802 local experimental type; addresses of the locally administered range, of no guest.
_FRAME = bytes.fromhex("02000000fffe02000000ffff88b5") + bytes(46)
_HEADERS = {
    "geneve": struct.pack("!BBHI", 0, 0, 0x6558, _NETWORK << 8),
    "vxlan": struct.pack("!II", 0x08 << 24, _NETWORK << 8),
}
_PAUSE_S = 0.2
_IP_RECVERR = 11  # Linux include/uapi/linux/in.h: errors of all kinds reach a connected socket


def send(remotes: Sequence[str], kind: str, port: int) -> Dict[str, str]:
    """Send a few packets to every address. Returns the kernel's word for those refused, as `No route to host`."""
    refused: Dict[str, str] = {}
    senders: Dict[str, socket.socket] = {}
    try:
        for remote in remotes:
            sender = senders[remote] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sender.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
            try:
                sender.connect((remote, port))
            except OSError as error:
                refused[remote] = os.strerror(error.errno or 0)
        for _ in range(PROBE_PACKETS):
            for remote, sender in senders.items():
                if remote not in refused:
                    _send(sender, remote, _HEADERS[kind] + _FRAME, refused)
            # The socket reports an ICMP refusal at its next call.
            time.sleep(_PAUSE_S)
        for remote, sender in senders.items():
            number = sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                refused.setdefault(remote, os.strerror(number))
    finally:
        for sender in senders.values():
            sender.close()
    return refused


def _send(sender: socket.socket, remote: str, packet: bytes, refused: Dict[str, str]) -> None:
    try:
        sender.send(packet)
    except OSError as error:
        refused[remote] = os.strerror(error.errno or 0)
