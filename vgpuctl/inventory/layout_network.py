# SPDX-License-Identifier: Apache-2.0
"""The key `network` of the variable `vgpu`: the host as one of OVN's chassis (docs/networks.md)."""

import ipaddress
import re

from vgpuctl.model.layout import Encapsulation, NetworkLayout
from vgpuctl.specs.value import Value

_KEYS = ("southbound", "tunnels", "chassis", "encapsulation", "mtu")
_REMOTE = re.compile(r"(?P<kind>ssl|tcp|unix):(?P<rest>[^\s,]+)")
_PORT = re.compile(r"(?P<address>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")
_CHASSIS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_SMALLEST_MTU, _LARGEST_MTU = 1280, 9216


def read_network(value: Value, host: str) -> NetworkLayout:
    """Read it. host: the inventory's name, by which OVN knows the host unless `chassis` says otherwise."""
    entries = value.fields(_KEYS, required=("southbound", "tunnels"))
    southbound = entries["southbound"]
    remotes = southbound.items() if isinstance(southbound.content, list) else [southbound]
    if not remotes:
        raise southbound.refuse("names no database")
    chassis = entries["chassis"].text() if "chassis" in entries else host
    if not _CHASSIS.fullmatch(chassis):
        raise entries.get("chassis", value).refuse(
            f"has {chassis!r} as the host's name in OVN", hint="give `chassis` in letters, digits, dots, _ and -"
        )
    encapsulation = entries["encapsulation"].choice(Encapsulation) if "encapsulation" in entries else None
    return NetworkLayout(
        tuple(_read_remote(one) for one in remotes),
        _read_tunnels(entries["tunnels"]),
        chassis,
        encapsulation or Encapsulation.GENEVE,
        entries["mtu"].whole(_SMALLEST_MTU, _LARGEST_MTU) if "mtu" in entries else 1500,
    )


def _read_remote(value: Value) -> str:
    """A database's place. Who may write to it owns every network, so plain TCP leads to this very host alone."""
    text = value.text()
    match = _REMOTE.fullmatch(text)
    hint = "write ssl:ADDRESS:6642, unix:PATH or tcp:127.0.0.1:6642"
    if match is None or (match["kind"] == "unix") != match["rest"].startswith("/"):
        raise value.refuse(f"is {text!r}, not the place of a database", hint=hint)
    if match["kind"] == "unix":
        return text
    place = _PORT.fullmatch(match["rest"])
    if place is None:
        raise value.refuse(f"is {text!r}, without address and port", hint=hint)
    if match["kind"] == "tcp" and not _is_loopback(place["address"]):
        raise value.refuse(f"is {text}: plain TCP on a routable address", hint="use ssl:ADDRESS:PORT")
    return text


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def _read_tunnels(value: Value) -> str:
    text = value.text(hint="write 10.83.0.0/24, or the host's own address")
    try:
        return str(ipaddress.IPv4Network(text))
    except ValueError as error:
        raise value.refuse(f"is {text!r}: {error}", hint="write the network of the tunnels, 10.83.0.0/24") from error
