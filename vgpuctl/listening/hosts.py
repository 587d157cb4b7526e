# SPDX-License-Identifier: Apache-2.0
"""Names that a server answers to: a page of another site has its own name in Host and Origin (DNS rebinding)."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from vgpuctl.errors import UsageError

_AUTHORITY = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[0-9A-Za-z._-]{1,254}))(?::(?P<port>[0-9]{1,5}))?"
)
_LABEL = re.compile(r"[0-9a-z_](?:[0-9a-z_-]{0,61}[0-9a-z_])?")
_HIGHEST_PORT = 65535
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class AskedHost:
    """A parsed Host header. name: in lower case without the last dot, or an address in its short form."""

    name: str
    port: int | None = None


def read_authority(text: str) -> AskedHost | None:
    """Read the content of a Host header; None for anything but a name or an address, with or without a port."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    port = None if found["port"] is None else int(found["port"])
    if port is not None and not 0 < port <= _HIGHEST_PORT:
        return None
    if found["v6"] is not None:
        address = _address(found["v6"])
        return None if address is None else AskedHost(str(address), port)
    address = _address(found["name"])
    name = str(address) if address is not None else found["name"].lower().removesuffix(".")
    if address is None and not all(_LABEL.fullmatch(one) for one in name.split(".")):
        return None
    return AskedHost(name, port)


def is_served(name: str, arrived_at: str, names: Iterable[str]) -> bool:
    """True if a connection to an address of this machine may ask for this name.

    arrived_at: the address; it may be asked for, on the loopback also `localhost` and every other loopback address.
    names: further ones, of the certificate and of --allow-host; `*.` at the beginning stands for one label.
    """
    here, asked = _address(arrived_at), _address(name)
    if here is not None and asked is not None:
        if asked == here or (here.is_loopback and asked.is_loopback):
            return True
    elif here is not None and here.is_loopback and name == "localhost":
        return True
    return any(_matches(one, name) for one in names)


def read_allowed_host(text: str) -> str:
    """Read a value of --allow-host: a name, an address, or `*.NAME`. Raises UsageError."""
    bare = text.removeprefix("*.")
    found = read_authority(f"[{text}]" if ":" in text and not text.startswith("[") else bare)
    if found is None or found.port is not None or (text != bare and ("." not in bare or _address(bare) is not None)):
        raise UsageError(
            f"--allow-host {text!a} is no name of a host",
            hint="give what clients write between // and the port: a name, an address, or *.NAME for one label more",
        )
    return f"*.{found.name}" if text != bare else found.name


def client_of(address: str) -> str:
    """The client behind an address: an IPv4 address, or the /64 of an IPv6 one, which a single machine has whole."""
    found = _address(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return address if found is None else str(found)


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("*."):
        return name.partition(".")[2] == pattern[2:]
    return name == pattern


def _address(text: str) -> _Address | None:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return found if mapped is None else mapped
