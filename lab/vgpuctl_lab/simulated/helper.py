# SPDX-License-Identifier: Apache-2.0
"""The `virt-ssh-helper` of a simulated host: its standard input and output become a client of the host's libvirt."""

import json
import os
import select
import socket
import sys
from pathlib import Path

from vgpuctl_lab.simulated.interpreter import HOST_VARIABLE

_CHUNK = 1 << 16


def main() -> None:
    """Connect, then copy both ways until one side ends."""
    folder = Path(os.environ[HOST_VARIABLE])
    services = json.loads((folder / "state.json").read_text()).get("services", {})
    if not services.get("libvirtd.service", True):
        sys.exit("virt-ssh-helper: cannot connect to '/var/run/libvirt/libvirt-sock': No such file or directory")
    # Through /proc, because a socket's path has at most 107 bytes.
    descriptor = os.open(folder.parent.parent, os.O_PATH | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/daemon.sock")
    except OSError as error:
        sys.exit(f"virt-ssh-helper: cannot connect to libvirt: {error.strerror}")
    request = {"call": "libvirt", "host": folder.name}
    connection.sendall(json.dumps(request).encode() + b"\n")
    while True:
        ready, _, _ = select.select([0, connection.fileno()], [], [])
        if 0 in ready:
            data = os.read(0, _CHUNK)
            if not data:
                return
            connection.sendall(data)
        if connection.fileno() in ready:
            data = connection.recv(_CHUNK)
            if not data:
                return
            while data:
                data = data[os.write(1, data) :]
