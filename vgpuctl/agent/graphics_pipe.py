# SPDX-License-Identifier: Apache-2.0
"""A guest's display on standard input and output: it runs on the host, as text given to its Python.

libvirt's own library gives a socket that is connected to the guest's VNC or SPICE server (virDomainOpenGraphicsFD),
also where that server listens nowhere. libvirt does so over a local socket only, hence here. It is called by ctypes,
because a host has the library wherever it has libvirt, and seldom the Python binding.
"""

import ctypes
import os
import select
import socket
import sys
from typing import Any, List

_LIBRARY = "libvirt.so.0"
_SKIP_AUTHENTICATION = 1  # VIR_DOMAIN_OPEN_GRAPHICS_SKIPAUTH
_CHUNK = 1 << 16
_HELD_AT_MOST = 1 << 20
_KEPT: List[Any] = []
"""What the library calls as long as the process lives."""


def main(uri: str, uuid: str, index: int) -> None:
    """Open the display of a domain and copy until one side ends. It ends with a message on stderr where it cannot."""
    server = socket.socket(fileno=open_display(uri, uuid, index))
    server.setblocking(False)
    copy(server)


def open_display(uri: str, uuid: str, index: int) -> int:
    """Ask libvirt for a connected socket, and give its file descriptor."""
    libvirt = load()
    connection = libvirt.virConnectOpen(uri.encode())
    if not connection:
        fail(libvirt, "cannot connect to libvirt")
    domain = libvirt.virDomainLookupByUUIDString(connection, uuid.encode())
    if not domain:
        fail(libvirt, "cannot find the domain " + uuid)
    descriptor = int(libvirt.virDomainOpenGraphicsFD(domain, index, _SKIP_AUTHENTICATION))
    if descriptor < 0:
        fail(libvirt, "cannot open the display")
    libvirt.virDomainFree(domain)
    libvirt.virConnectClose(connection)
    return descriptor


def load() -> Any:
    """Load libvirt's library, which then prints nothing by itself."""
    try:
        libvirt = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        sys.exit("cannot load libvirt's library: %s" % error)
    for name in ("virConnectOpen", "virDomainLookupByUUIDString"):
        getattr(libvirt, name).restype = ctypes.c_void_p
    libvirt.virGetLastErrorMessage.restype = ctypes.c_char_p
    libvirt.virConnectOpen.argtypes = [ctypes.c_char_p]
    libvirt.virConnectClose.argtypes = libvirt.virDomainFree.argtypes = [ctypes.c_void_p]
    libvirt.virDomainLookupByUUIDString.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    libvirt.virDomainOpenGraphicsFD.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    silent = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: None)
    _KEPT.append(silent)
    libvirt.virSetErrorFunc(None, silent)
    return libvirt


def fail(libvirt: Any, what: str) -> None:
    """End with libvirt's last error."""
    said = libvirt.virGetLastErrorMessage() or b"no reason given"
    sys.exit("%s: %s" % (what, said.decode("utf-8", "replace")))


def copy(server: socket.socket) -> None:
    """Copy both ways until one side ends; each direction waits for its reader."""
    to_server, to_client = bytearray(), bytearray()
    while True:
        readable = [one for one, held in ((0, to_server), (server, to_client)) if len(held) < _HELD_AT_MOST]
        writable = [one for one, held in ((1, to_client), (server, to_server)) if held]
        readable, writable, _ = select.select(readable, writable, [])
        if 0 in readable:
            data = os.read(0, _CHUNK)
            if not data:
                return
            to_server += data
        if server in readable:
            data = server.recv(_CHUNK)
            if not data:
                drain(to_client)
                return
            to_client += data
        if 1 in writable:
            del to_client[: os.write(1, to_client[:_CHUNK])]
        if server in writable:
            del to_server[: server.send(to_server)]


def drain(held: bytearray) -> None:
    """Write what the server said last."""
    while held:
        del held[: os.write(1, held[:_CHUNK])]


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    except (BrokenPipeError, ConnectionError):
        sys.exit(0)  # One of the two sides has gone.
