# SPDX-License-Identifier: Apache-2.0
"""Checks of a host that is declared to be one of OVN's chassis."""

from collections.abc import Iterator

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.model.host_parts import INSTALL_MODULES, missing_chassis, missing_modules
from vgpuctl.planner.doctor.examined import Examined
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.layout.network import tunnel_address

_HOST = "host"
_CONNECTED = "connected"


def ovn(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: the host's chassis does not work, is not the declared one, or cannot reach OVN's database."""
    network = seen.layout.network if seen.layout else None
    if network is None:
        return
    found = seen.facts.ovn
    faults = missing_chassis(seen.facts)
    for one in faults:
        yield Finding(CheckId.OVN, Severity.ERROR, _HOST, one.read, one.fix)
    if found is None or found.missing:
        return
    for name in missing_modules(found, str(network.encapsulation)):
        read = f"{seen.facts.kernel} has no module {name}"
        if all(one.read != read for one in faults):
            yield Finding(CheckId.OVN, Severity.ERROR, _HOST, read, INSTALL_MODULES)
    if found.chassis is not None and found.chassis.system_id not in ("", network.chassis):
        read = f"Open vSwitch's system-id is {found.chassis.system_id}, the inventory has {network.chassis}"
        fix = "`vgpuctl apply-hosts` sets it; delete the old chassis with ovn-sbctl chassis-del"
        yield Finding(CheckId.OVN, Severity.ERROR, _HOST, read, fix)
    address = tunnel_address(network, found)
    if found.chassis is not None and found.chassis.address not in ("", address):
        read = f"tunnels end at {found.chassis.address}, the host's address in {network.tunnels} is {address or 'none'}"
        yield Finding(
            CheckId.OVN, Severity.ERROR, _HOST, read, "`vgpuctl apply-hosts` sets it, once the host has the address"
        )
    diagnostics = seen.diagnostics.ovn
    if diagnostics is not None and diagnostics.connection != _CONNECTED:
        read = f"ovn-controller is {diagnostics.connection or 'silent'} with {', '.join(network.southbound)}"
        fix = (
            "see whether ovn-central runs and is reachable, and /var/log/ovn/ovn-controller.log; flows stay as they are"
        )
        yield Finding(CheckId.OVN, Severity.ERROR, _HOST, read, fix)


def ovn_role(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: the southbound database lets the host write more than its own rows."""
    network = seen.layout.network if seen.layout else None
    if network is not None and seen.diagnostics.ovn is not None and seen.diagnostics.ovn.has_role is False:
        read = f"{', '.join(network.southbound)} lets this host's certificate write every row of every host"
        fix = "on the central's machine: ovn-sbctl set-connection role=ovn-controller pssl:6642"
        yield Finding(CheckId.OVN_ROLE, Severity.WARNING, _HOST, read, fix)


def tunnel_mtu(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: the network between the hosts does not carry packets of the size that guests' MTU needs."""
    network = seen.layout.network if seen.layout else None
    if network is None or seen.facts.ovn is None:
        return
    address = tunnel_address(network, seen.facts.ovn)
    fix = f"let the interfaces and switches carry {network.mtu} bytes, or declare a smaller mtu on every host"
    for one in seen.facts.ovn.interfaces:
        bare = [text.partition("/")[0] for text in one.addresses]
        if address in bare and one.mtu < network.mtu:
            read = (
                f"the MTU of {one.name} is {one.mtu}, guests' packets of {network.guest_mtu} bytes need {network.mtu}"
            )
            yield Finding(CheckId.TUNNEL_MTU, Severity.ERROR, _HOST, read, fix)
            return
    for tunnel in seen.diagnostics.ovn.tunnels if seen.diagnostics.ovn else ():
        if 0 < tunnel.carries < network.mtu:
            read = f"the way to {tunnel.remote} carries {tunnel.carries} bytes and not {network.mtu}"
            yield Finding(CheckId.TUNNEL_MTU, Severity.ERROR, _HOST, read, fix)


def tunnel_down(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: the other end of a tunnel does not answer, or the tunnel's own packets do not pass."""
    network = seen.layout.network if seen.layout else None
    if network is None or seen.diagnostics.ovn is None:
        return
    unanswered = [tunnel.remote for tunnel in seen.diagnostics.ovn.tunnels if tunnel.carries == 0]
    for remote in unanswered:
        fix = "see whether that host is up, and what lies between: VLAN, firewall (UDP 6081 geneve, 4789 vxlan)"
        yield Finding(CheckId.TUNNEL_DOWN, Severity.ERROR, _HOST, f"{remote} does not answer", fix)
    for state in seen.tunnels:
        port = f"UDP {state.port}"
        here = f"let {port} through: firewall-cmd --permanent --add-port={state.port}/udp; firewall-cmd --reload"
        if state.remote in unanswered:
            continue
        if state.refused is not None:
            read = f"{state.remote} answers ping and refuses the tunnel's packets, {port}: {state.refused}"
            yield Finding(CheckId.TUNNEL_DOWN, Severity.ERROR, _HOST, read, f"on that host, {here}")
        elif state.is_silent:
            read = f"{state.remote} answers ping, but none of the tunnel's packets from it arrive, {port}"
            yield Finding(
                CheckId.TUNNEL_DOWN, Severity.ERROR, _HOST, read, f"on this host, or on the way to it, {here}"
            )
        elif state.bfd == "down":
            read = f"BFD says that the tunnel to {state.remote} is down"
            yield Finding(CheckId.TUNNEL_DOWN, Severity.ERROR, _HOST, read, f"on both hosts, {here}")


def network_functions(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: a program of a tenant's network does not run, or is not what was made here."""
    fix = "`vgpuctl repair` brings it back; `journalctl -u 'vgpuctl-function-*'` on the host tells why it ended"
    for read in seen.functions:
        yield Finding(CheckId.NETWORK_FUNCTIONS, Severity.ERROR, _HOST, read, fix)
