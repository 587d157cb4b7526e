# SPDX-License-Identifier: Apache-2.0
"""How running VMs move to and from a host, as the inventory declares it."""

from dataclasses import dataclass
from enum import StrEnum


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
