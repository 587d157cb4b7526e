# SPDX-License-Identifier: Apache-2.0
"""The user at the other end of a loopback connection: any user of the machine can reach a port of 127.0.0.1.

Source: Linux, Documentation/networking/proc_net_tcp.rst.
"""

import os
import socket
import struct
from pathlib import Path

_TABLE = Path("/proc/net/tcp")
_STATE_FIELD, _UID_FIELD = 3, 7
_ESTABLISHED = "01"
"""TCP_ESTABLISHED of include/net/tcp_states.h."""


def is_own_peer(connection: socket.socket) -> bool:
    """True if the other end of an accepted IPv4 connection is open, and belongs to this user or to root.

    An end that is closed counts for nobody: the table gives the user 0 for what is left of it (`get_timewait4_sock` of
    net/ipv4/tcp_ipv4.c), while all that was sent before is still to be read. False where the system has no table.
    """
    try:
        user = _user_of(_shown(*connection.getpeername()), _shown(*connection.getsockname()))
    except OSError:  # It is gone already.
        return False
    return user is not None and user in (0, os.geteuid())


def _user_of(local: str, remote: str) -> int | None:
    try:
        with _TABLE.open(encoding="ascii") as table:
            for line in table:
                parts = line.split()
                if parts[1 : _STATE_FIELD + 1] == [local, remote, _ESTABLISHED]:
                    return int(parts[_UID_FIELD])
    except OSError:
        return None
    return None


def _shown(address: str, port: int) -> str:
    """An address as the table has it: the bytes of the address as a number of this machine's byte order."""
    (number,) = struct.unpack("=I", socket.inet_aton(address))
    return f"{number:08X}:{port:04X}"
