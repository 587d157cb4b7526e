# SPDX-License-Identifier: Apache-2.0
"""The host as one of OVN's chassis: its daemons, its settings, the bridges of its uplinks."""

import hashlib
import ipaddress
from collections.abc import Sequence

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.ovn import AUTHORITY, CERTIFICATE, KEY, BridgeFacts, OvnFacts
from vgpuctl.agent.wire.steps import Chassis, SetOvnChassis, SetOvnDaemon, SetUplinkBridge, Step, TakeOutUplink
from vgpuctl.model.host_parts import INSTALL_MODULES, install_ovn, missing_modules
from vgpuctl.model.layout import HostLayout, NetworkLayout
from vgpuctl.planner.layout.result import Difference, HostPlan, LayoutObstacle, Phase, PlannedStep

_SWITCH, _CONTROLLER = "switch", "controller"
_LONGEST_NAME = 15
_NAMES = (
    ("system_id", "chassis-name"),
    ("remote", "southbound"),
    ("encapsulation", "encapsulation"),
    ("address", "tunnel-address"),
    ("mappings", "bridge-mappings"),
)


def bridge_name(network: str) -> str:
    """The bridge of a physical network: at most 15 characters, as the kernel has it."""
    name = f"br-{network}"
    is_short = len(name) <= _LONGEST_NAME and all(one.isalnum() or one in "_.-" for one in network)
    return name if is_short else f"br-{hashlib.sha256(network.encode()).hexdigest()[:12]}"


def tunnel_address(network: NetworkLayout, facts: OvnFacts) -> str | None:
    """The host's own address in the tunnels' network, the lowest where it has several."""
    wanted = ipaddress.IPv4Network(network.tunnels)
    found = [ipaddress.IPv4Interface(text).ip for one in facts.interfaces for text in one.addresses]
    inside = sorted(address for address in found if address in wanted)
    return str(inside[0]) if inside else None


def plan_network(layout: HostLayout, facts: HostFacts, doubles: Sequence[LayoutObstacle] = ()) -> HostPlan:
    """Differences and steps; what is not installed or not addressed is an obstacle.

    doubles: values of the host that another host of the fleet has too; then it gets no steps here either.
    """
    network = layout.network
    if network is None:
        return HostPlan()
    why = facts.why_unread("ovn")
    if why is not None:
        return HostPlan(obstacles=(LayoutObstacle(None, "unread", why, "look at the host", layout.origin), *doubles))
    found = facts.ovn or OvnFacts(missing=("ovs-vsctl", "ovn-controller"))
    own = [LayoutObstacle(None, *words, layout.origin) for words in _obstacles(layout, network, found, facts)]
    obstacles = [*own, *doubles]
    if obstacles:
        return HostPlan(obstacles=tuple(obstacles))
    steps: list[PlannedStep] = []
    differences: list[Difference] = []
    if network.uses_tls and not found.has_certificate:
        files = f"{KEY}, {CERTIFICATE}, {AUTHORITY}"
        differences.append(
            Difference(None, "certificate", files, "not all there", "`vgpuctl apply-hosts` puts it there")
        )
    for part, active in ((_SWITCH, found.switch_active), (_CONTROLLER, found.controller_active)):
        start, stop = SetOvnDaemon(part, True), SetOvnDaemon(part, False)
        if not active:
            differences.append(Difference(None, f"ovn-{part}", "active", "not active"))
            steps.append(PlannedStep(Phase.HOST, start, f"start OVN's {part}", undo=(stop,)))
        elif part in found.not_enabled:
            differences.append(Difference(None, f"ovn-{part}", "started at boot", "not started at boot"))
            steps.append(PlannedStep(Phase.HOST, start, f"let systemd start OVN's {part} at boot"))
    if found.chassis is None:
        return HostPlan(tuple(steps[:1]), tuple(differences), later=("OVN's settings, once Open vSwitch runs",))
    between = [*_plan_uplinks(layout, found), *_plan_chassis(layout, network, found)]
    differences += [difference for _step, some in between for difference in some]
    # ovn-controller comes last: it then begins with the settings that are meant.
    return HostPlan((*(step for step, _some in between), *steps), tuple(differences))


def network_steps(layout: HostLayout, facts: HostFacts) -> list[Step]:
    """The way from a fresh boot to the layout; on a host that keeps its settings none of them changes anything."""
    found, network = facts.ovn, layout.network
    if network is None or found is None or found.chassis is None:
        return []
    return [
        SetOvnDaemon(_SWITCH, True),
        *(SetUplinkBridge(bridge_name(name), interface) for name, interface in layout.uplinks),
        SetOvnChassis(wanted_chassis(layout, network, found)),
        SetOvnDaemon(_CONTROLLER, True),
    ]


def wanted_chassis(layout: HostLayout, network: NetworkLayout, found: OvnFacts) -> Chassis:
    """The wanted content of Open vSwitch's database. Mappings stay as they are without a declared uplink."""
    declared = ",".join(f"{name}:{bridge_name(name)}" for name, _interface in layout.uplinks)
    return Chassis(
        network.chassis,
        ",".join(network.southbound),
        str(network.encapsulation),
        tunnel_address(network, found) or "",
        declared or (found.chassis.mappings if found.chassis else ""),
        network.uses_tls,
    )


def _obstacles(
    layout: HostLayout, network: NetworkLayout, found: OvnFacts, facts: HostFacts
) -> list[tuple[str, str, str]]:
    """Code, reason and remedy of everything that keeps the host from being a chassis."""
    if found.missing:
        return [("ovn-missing", f"the host has no {', '.join(found.missing)}", install_ovn(facts))]
    reasons = []
    absent = missing_modules(found, str(network.encapsulation))
    if absent:
        reason = f"the running kernel has no module {', '.join(absent)}"
        reasons.append(("ovn-no-module", reason, INSTALL_MODULES))
    if tunnel_address(network, found) is None:
        reason = f"the host has no address in {network.tunnels}"
        reasons.append(("no-tunnel-address", reason, "give one of its interfaces an address there"))
    interfaces = {one.name: one for one in found.interfaces}
    for name, interface in layout.uplinks:
        bridge = _bridge_with(interface, found)
        if bridge is not None and bridge.name != bridge_name(name):
            reasons.append(("uplink-in-use", f"{interface} is in the bridge {bridge.name}", "name another interface"))
        elif bridge is None and interface in interfaces and interfaces[interface].addresses:
            have = ", ".join(interfaces[interface].addresses)
            remedy = f"name an interface without address, or move the address to {bridge_name(name)}"
            reasons.append(("uplink-in-use", f"{interface} has the address {have}, which a bridge would cut", remedy))
    return reasons


def _plan_uplinks(layout: HostLayout, found: OvnFacts) -> list[tuple[PlannedStep, list[Difference]]]:
    planned = []
    names = {one.name for one in found.interfaces}
    for network, interface in layout.uplinks:
        bridge = bridge_name(network)
        inside = _bridge_with(interface, found)
        if interface not in names:
            continue
        if inside is not None:
            if interface in found.managed:
                step = PlannedStep(
                    Phase.HOST, SetUplinkBridge(bridge, interface), f"keep NetworkManager from {interface}"
                )
                planned.append((step, [Difference(None, "uplink", f"{interface} unmanaged", "NetworkManager's")]))
            continue
        has_bridge = any(one.name == bridge for one in found.bridges)
        undo = (TakeOutUplink(bridge, interface),) if has_bridge else (SetUplinkBridge(bridge, None),)
        step = PlannedStep(
            Phase.HOST, SetUplinkBridge(bridge, interface), f"put {interface} into the bridge {bridge}", undo=undo
        )
        planned.append((step, [Difference(None, "uplink-bridge", f"{interface} in {bridge}", "not in a bridge")]))
    return planned


def _plan_chassis(
    layout: HostLayout, network: NetworkLayout, found: OvnFacts
) -> list[tuple[PlannedStep, list[Difference]]]:
    assert found.chassis is not None
    before, wanted = found.chassis, wanted_chassis(layout, network, found)
    if before == wanted:
        return []
    differences = [
        Difference(None, subject, getattr(wanted, field) or "none", getattr(before, field) or "none")
        for field, subject in _NAMES
        if getattr(before, field) != getattr(wanted, field)
    ]
    if before.uses_tls != wanted.uses_tls:
        words = {True: "used", False: "not used"}
        differences.append(Difference(None, "certificate", words[wanted.uses_tls], words[before.uses_tls]))
    summary = f"be OVN's chassis {wanted.system_id} at {wanted.address} by {wanted.encapsulation}"
    step = PlannedStep(Phase.HOST, SetOvnChassis(wanted), summary, undo=(SetOvnChassis(before),))
    return [(step, differences)]


def _bridge_with(interface: str, found: OvnFacts) -> BridgeFacts | None:
    return next((one for one in found.bridges if interface in one.interfaces), None)
