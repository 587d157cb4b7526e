# SPDX-License-Identifier: Apache-2.0
"""The address that a server listens on, as the user writes it."""

import ipaddress

from vgpuctl.errors import UsageError


def listen_address(text: str) -> tuple[str, int]:
    """Read `127.0.0.1:9635`, `[::1]:9635` or `:9635` (every address). Raises UsageError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    try:
        address = str(ipaddress.ip_address(host or "0.0.0.0"))
    except ValueError:
        address = "127.0.0.1" if host == "localhost" else ""
    if not colon or not address or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise UsageError(
            f"--listen {text!a} is no address with a port", hint="write 127.0.0.1:9635, [::1]:9635 or :9635"
        )
    return address, int(port)
