# SPDX-License-Identifier: Apache-2.0
"""Facts of Open vSwitch and OVN on a host. Python 3.9, standard library only."""

from typing import Optional, Tuple

from vgpuctl.agent.wire.steps import Chassis
from vgpuctl.agent.wire.values import dataclass, field

PROGRAMS = ("ovs-vsctl", "ovsdb-client", "ovn-controller", "ovn-appctl")
INTEGRATION_BRIDGE = "br-int"
# How many each probe sends over each tunnel.
PROBE_PACKETS = 3
# Where a host has its key and certificate for OVN's databases, and the authority that it believes.
FOLDER = "/etc/vgpuctl/ovn"
KEY, CERTIFICATE, AUTHORITY = (f"{FOLDER}/{name}.pem" for name in ("key", "certificate", "authority"))


@dataclass(frozen=True)
class CertificateFiles:
    """A host's identity and the authority it trusts; PEM texts. The key is never shown.

    is_for_moves: for QEMU, when VMs move over TLS, instead of for OVN's databases.
    """

    certificate: str
    authority: str
    key: str = field(repr=False)
    is_for_moves: bool = False


@dataclass(frozen=True)
class InterfaceFacts:
    """One network interface. addresses: IPv4 with prefix, `10.83.0.1/24`."""

    name: str
    mtu: int
    addresses: Tuple[str, ...] = ()


@dataclass(frozen=True)
class BridgeFacts:
    """One bridge of Open vSwitch and what is in it."""

    name: str
    interfaces: Tuple[str, ...] = ()


@dataclass(frozen=True)
class OvnFacts:
    """Open vSwitch and OVN on the host.

    missing: programs that are not installed. modules: those of `openvswitch`, `geneve` and `vxlan` that the
    running kernel has or can load. chassis: None while Open vSwitch does not run. has_certificate: whether all three
    files of FOLDER are there and ovn-controller's user can read the key. not_enabled: parts (`switch`, `controller`)
    that systemd would not start at boot. managed: interfaces in bridges that NetworkManager may give addresses to.
    """

    missing: Tuple[str, ...] = ()
    modules: Tuple[str, ...] = ()
    switch_active: bool = False
    controller_active: bool = False
    chassis: Optional[Chassis] = None
    bridges: Tuple[BridgeFacts, ...] = ()
    interfaces: Tuple[InterfaceFacts, ...] = ()
    has_certificate: bool = False
    not_enabled: Tuple[str, ...] = ()
    managed: Tuple[str, ...] = ()


@dataclass(frozen=True)
class TunnelDiagnostics:
    """One tunnel. carries: the largest of the tried packets that came back from its other end, 0 when none did."""

    remote: str
    carries: int


@dataclass(frozen=True)
class OvnDiagnostics:
    """True if OVN works on the host.

    connection: what ovn-controller says of its database, `connected` at best. has_role: whether the database holds the
    host to OVN's role for hosts, None where it was not asked.
    """

    connection: str
    tunnels: Tuple[TunnelDiagnostics, ...] = ()
    has_role: Optional[bool] = None


@dataclass(frozen=True)
class TunnelWay:
    """One tunnel as its counters and a few packets show it.

    received: packets from the other end since the tunnel was made. refused: the kernel's word when our packets were
    refused on their way. bfd: `up`, `down` or None where OVN does not use BFD.
    """

    remote: str
    port: int
    received: int
    refused: Optional[str] = None
    bfd: Optional[str] = None


@dataclass(frozen=True)
class TunnelProbe:
    """Result of one probe of all tunnels. address: this end's."""

    address: str
    ways: Tuple[TunnelWay, ...] = ()
