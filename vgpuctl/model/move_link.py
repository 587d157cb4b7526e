# SPDX-License-Identifier: Apache-2.0
"""How running VMs move to and from a host, as the inventory declares it."""

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address


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


def comparable_address(text: str) -> str:
    """Return an address in its short form, or a name in lower case: equal ones lead to the same host."""
    try:
        return ip_address(text).compressed
    except ValueError:
        return text.lower().rstrip(".")


def leads_back(text: str) -> bool:
    """True for an address or name by which every host reaches itself, or none: localhost, 127.0.0.1, 0.0.0.0."""
    try:
        address = ip_address(text)
    except ValueError:
        return comparable_address(text) == "localhost"
    return address.is_loopback or address.is_unspecified or address.is_multicast
