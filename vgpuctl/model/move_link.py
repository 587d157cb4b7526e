# SPDX-License-Identifier: Apache-2.0
"""How running VMs move to and from a host, as the inventory declares it."""

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import inet_aton


class MoveNetwork(StrEnum):
    """Who is trusted with the memory of guests on its way.

    trusted: the network between the hosts, which nobody else can read; QEMU sends in the clear. tls: nobody; both QEMUs
    prove who they are with the certificates that libvirt knows (`default_tls_x509_cert_dir` of qemu.conf).
    """

    TRUSTED = "trusted"
    TLS = "tls"


@dataclass(frozen=True)
class MoveLink:
    """network: None where nothing is declared; running VMs then do not move to or from the host.

    address: by which other hosts reach this one for moves; None for its address in the inventory. bandwidth_mbps: the
    most that a move may send or receive, in Mbit/s; None for what the link gives.
    """

    network: MoveNetwork | None = None
    address: str | None = None
    bandwidth_mbps: int | None = None


NO_MOVE_LINK = MoveLink()


_SELF = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "localhost4", "localhost6")
"""Names by which distributions let a host reach itself, in /etc/hosts."""


def comparable_address(text: str) -> str:
    """Return an address in its short form, or a name in lower case: equal ones lead to the same host."""
    address = _address_of(text)
    return text.lower().rstrip(".") if address is None else address.compressed


def leads_back(text: str) -> bool:
    """True for an address or name by which every host reaches itself, or none: localhost, 127.1, 0.0.0.0."""
    address = _address_of(text)
    if address is None:
        name = comparable_address(text)
        return name in _SELF or name.endswith((".localhost", ".localdomain4", ".localdomain6"))
    return address.is_loopback or address.is_unspecified or address.is_multicast


def _address_of(text: str) -> IPv4Address | IPv6Address | None:
    """The address that a host's resolver takes a text for, as 127.1 and 0x7f000001; None for a name.

    An IPv4 address that is written as one of IPv6, ::ffff:10.0.0.7, is that IPv4 address.
    """
    try:
        address = ip_address(text)
    except ValueError:
        try:
            return IPv4Address(inet_aton(text))
        except (OSError, ValueError):
            return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
