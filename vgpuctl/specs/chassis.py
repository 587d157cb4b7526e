# SPDX-License-Identifier: Apache-2.0
"""The table of the key `network` of the variable `vgpu`: the host as one of OVN's chassis (docs/networks.md)."""

import ipaddress
import re
from typing import Any

from vgpuctl.errors import UsageError
from vgpuctl.model.layout import Encapsulation, NetworkLayout
from vgpuctl.specs.field import Choice, Field, Table, Text, Whole
from vgpuctl.specs.value import Value

_REMOTE = re.compile(r"(?P<kind>ssl|tcp|unix):(?P<rest>[^\s,]+)")
_PORT = re.compile(r"(?P<address>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")
_CHASSIS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def _parse_remote(text: str, /, *, what: str) -> str:
    """A database's place. Who may write to it owns every network, so plain TCP leads to this very host alone."""
    match = _REMOTE.fullmatch(text)
    hint = "write ssl:ADDRESS:6642, unix:PATH or tcp:127.0.0.1:6642"
    if match is None or (match["kind"] == "unix") != match["rest"].startswith("/"):
        raise UsageError(f"{what} is {text!r}, not the place of a database", hint=hint)
    if match["kind"] == "unix":
        return text
    place = _PORT.fullmatch(match["rest"])
    if place is None:
        raise UsageError(f"{what} is {text!r}, without address and port", hint=hint)
    if match["kind"] == "tcp" and not _is_loopback(place["address"]):
        raise UsageError(f"{what} is {text}: plain TCP on a routable address", hint="use ssl:ADDRESS:PORT")
    return text


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def _parse_tunnels(text: str, /, *, what: str) -> str:
    try:
        return str(ipaddress.IPv4Network(text))
    except ValueError as error:
        raise UsageError(
            f"{what} is {text!r}: {error}", hint="write the network of the tunnels, 10.83.0.0/24"
        ) from error


def _parse_chassis(text: str, /, *, what: str) -> str:
    if not _CHASSIS.fullmatch(text):
        raise UsageError(
            f"{what} has {text!r} as the host's name in OVN", hint="give `chassis` in letters, digits, dots, _ and -"
        )
    return text


def _network(values: dict[str, Any], entry: Value) -> NetworkLayout:
    """OVN knows the host by its name in the inventory, unless `chassis` says otherwise."""
    if "chassis" not in values:
        with entry.located():
            values["chassis"] = _parse_chassis(entry.host, what=entry.words)
    return CHASSIS.build(values)


CHASSIS = Table(
    "vgpu.network",
    NetworkLayout,
    (
        Field(
            "southbound",
            Text(_parse_remote),
            "OVN's southbound database: ssl:ADDRESS:PORT, unix:PATH, or tcp:ADDRESS:PORT on loopback",
            metavar="DATABASE",
            is_list=True,
            is_required=True,
            at_least_one=True,
            may_stand_alone=True,
        ),
        Field(
            "tunnels",
            Text(_parse_tunnels, hint="write 10.83.0.0/24, or the host's own address"),
            "Network that has one address of the host, for its tunnels; one line in group_vars serves all hosts",
            metavar="CIDR",
            is_required=True,
        ),
        Field(
            "chassis",
            Text(_parse_chassis),
            "The host's name in OVN (`system-id`)",
            metavar="NAME",
            default="its name in the inventory",
        ),
        Field("encapsulation", Choice(Encapsulation), "Protocol of the tunnels"),
        Field("mtu", Whole(1280, 9216), "Largest packet that the network between the hosts carries, in bytes"),
    ),
    make=_network,
)
