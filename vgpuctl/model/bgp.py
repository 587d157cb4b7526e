# SPDX-License-Identifier: Apache-2.0
"""BGP of an external network: who speaks it on which chassis, with whom, and what is announced."""

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.errors import UsageError
from vgpuctl.model.secret_text import SecretText

LARGEST_AS = 2**32 - 2
_RESERVED = {0: "RFC 7607", 23456: "AS_TRANS, RFC 6793", 65535: "RFC 7300"}
# TCP_MD5SIG_MAXKEYLEN of Linux, and nothing with a meaning in FRR's configuration.
_PASSWORD = re.compile(r"[A-Za-z0-9._~+/=@:-]{1,80}")
_CHASSIS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class Announced(StrEnum):
    """What is announced."""

    FLOATING_IPS = "floating-ips"
    """The floating IPs of tenants, as /32 and /128."""
    ROUTED6 = "routed6"
    """Networks of tenants within the prefixes of --routed6."""


@dataclass(frozen=True)
class BgpNeighbour:
    """A router of the provider."""

    address: str
    as_number: int


@dataclass(frozen=True)
class BgpSpeaker:
    """The end of our sessions on one chassis. address: in the external network, and no tenant's."""

    chassis: str
    address: str


@dataclass(frozen=True)
class Bgp:
    """The sessions of an external network: of each speaker with each neighbour. password: of all (TCP MD5)."""

    as_number: int
    neighbours: tuple[BgpNeighbour, ...] = ()
    speakers: tuple[BgpSpeaker, ...] = ()
    announces: tuple[Announced, ...] = tuple(Announced)
    password: SecretText | None = None


@dataclass(frozen=True)
class Announcement:
    """One route. via: the address of the tenant's router, which has it."""

    prefix: str
    via: str


def parse_as(text: str, *, what: str = "--bgp-as") -> int:
    """Read the number of an autonomous system. Raises UsageError."""
    number = int(text) if re.fullmatch("[0-9]{1,10}", text) else -1
    if not 0 <= number <= LARGEST_AS:
        raise UsageError(f"{what} {text[:40]!a} is not the number of an AS", hint=f"1 to {LARGEST_AS}")
    if number in _RESERVED:
        raise UsageError(f"{what} {number} is reserved ({_RESERVED[number]})", hint="private ones are 64512 to 65534")
    return number


def parse_neighbour(text: str, *, what: str = "--bgp-neighbour") -> BgpNeighbour:
    """Read `203.0.113.1=65000`: the address of a router and its AS. Raises UsageError."""
    address, _, number = text.partition("=")
    return BgpNeighbour(_parse_address(address, text, what), parse_as(number, what=f"{what} {text[:60]!a}: AS"))


def describe_neighbour(one: BgpNeighbour) -> str:
    """A neighbour as `parse_neighbour` reads it."""
    return f"{one.address}={one.as_number}"


def parse_speaker(text: str, *, what: str = "--bgp-speaker") -> BgpSpeaker:
    """Read `gpu1=203.0.113.2`: a chassis and its address in the external network. Raises UsageError."""
    chassis, _, address = text.rpartition("=")
    if not _CHASSIS.fullmatch(chassis):
        raise UsageError(f"{what} {text[:60]!a} names no chassis", hint="write CHASSIS=ADDRESS: gpu1=203.0.113.2")
    return BgpSpeaker(chassis, _parse_address(address, text, what))


def describe_speaker(one: BgpSpeaker) -> str:
    """A speaker as `parse_speaker` reads it."""
    return f"{one.chassis}={one.address}"


def parse_password(text: str, *, what: str = "--bgp-password") -> SecretText:
    """Read the password of sessions, which no message repeats. Raises UsageError."""
    if not _PASSWORD.fullmatch(text.strip()):
        raise UsageError(
            f"{what} is not a password of BGP",
            hint="1 to 80 letters, digits and . _ ~ + / = @ : -",
        )
    return SecretText.of(text.strip())


def check_bgp(bgp: Bgp, *, cidr: str, gateway: str, pool: tuple[str, str], chassis: tuple[str, ...]) -> None:
    """Raise UsageError for sessions that cannot be. pool: first and last address for tenants."""
    subnet = ipaddress.IPv4Network(cidr)
    low, high = (int(ipaddress.IPv4Address(one)) for one in pool)
    if not bgp.neighbours or not bgp.speakers:
        raise UsageError("BGP needs a neighbour and a speaker", hint="give --bgp-neighbour and --bgp-speaker")
    if not bgp.announces:
        raise UsageError("BGP would announce nothing", hint=f"give --bgp-announce: {', '.join(Announced)}")
    taken: dict[str, str] = {}
    named = [(one.address, f"neighbour {one.address}") for one in bgp.neighbours]
    named += [(one.address, f"speaker {describe_speaker(one)}") for one in bgp.speakers]
    for address, what in named:
        number = ipaddress.IPv4Address(address)
        if number not in subnet or number in (subnet.network_address, subnet.broadcast_address):
            raise UsageError(f"BGP {what} is not in {cidr}", hint="sessions are within the external network")
        if low <= int(number) <= high:
            raise UsageError(f"BGP {what} has an address of the pool for tenants", hint="choose one outside of it")
        if address in taken:
            raise UsageError(f"BGP {what} has the address of {taken[address]}", hint="give each an address of its own")
        taken[address] = what
    for speaker in bgp.speakers:
        if speaker.address == gateway:
            raise UsageError(f"BGP speaker {describe_speaker(speaker)} has the gateway's address")
        if speaker.chassis not in chassis:
            raise UsageError(
                f"BGP speaker {describe_speaker(speaker)}: {speaker.chassis} is no chassis of the external network",
                hint=f"its chassis are {', '.join(chassis) or 'none: give --chassis'}",
            )
    names = [one.chassis for one in bgp.speakers]
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise UsageError(f"chassis {twice} has two BGP speakers", hint="one speaker has sessions with all neighbours")


def _parse_address(address: str, text: str, what: str) -> str:
    try:
        return str(ipaddress.IPv4Address(address))
    except ValueError as error:
        hint = "sessions are by IPv4, also for routes of IPv6"
        raise UsageError(f"{what} {text[:60]!a} has no IPv4 address", hint=hint) from error
