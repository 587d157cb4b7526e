# SPDX-License-Identifier: Apache-2.0
"""Values that one host alone may have in the whole fleet: its name in OVN, the addresses of tunnels and uplinks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.layout import HostLayout
from vgpuctl.planner.layout.network import bridge_name, tunnel_address
from vgpuctl.planner.layout.result import LayoutObstacle


@dataclass(frozen=True)
class FleetValue:
    """One value of one host. subject: what it is, in words. origin: `FILE:LINE` of the part that has it or leads
    to it."""

    subject: str
    value: str
    host: str
    origin: str


@dataclass(frozen=True)
class FleetValues:
    """The values of all hosts of the inventory, by subject and value."""

    known: Mapping[tuple[str, str], tuple[FleetValue, ...]]

    def obstacles_of(self, host: str, layout: HostLayout, facts: HostFacts | None) -> list[LayoutObstacle]:
        """Values that another host has too, with both places in the inventory. facts: of the host, just read."""
        found = []
        for own in values_of(host, layout, facts):
            others = [one for one in self.known.get((own.subject, own.value), ()) if one.host != host]
            if others:
                named = ", ".join(f"{one.host} ({one.origin})" for one in others)
                reason = f"{own.subject} {own.value} is also that of {named}; it must be one host's alone"
                remedy = f"give one of them another one: {host} has its own at {own.origin}"
                found.append(LayoutObstacle(None, "not-unique", reason, remedy, own.origin))
        return found


def collect(values: Iterable[FleetValue]) -> FleetValues:
    """Order values by what they are; hosts by name."""
    known: dict[tuple[str, str], tuple[FleetValue, ...]] = {}
    for one in sorted(values, key=lambda value: value.host):
        key = (one.subject, one.value)
        known[key] = (*known.get(key, ()), one)
    return FleetValues(known)


def values_of(host: str, layout: HostLayout, facts: HostFacts | None) -> Iterator[FleetValue]:
    """The values of a host: as declared, and the addresses that it had when it was read."""
    network = layout.network
    if network is None:
        return
    yield FleetValue("the name in OVN", network.chassis, host, layout.place_of("network.chassis"))
    if facts is None or facts.ovn is None:
        return
    address = tunnel_address(network, facts.ovn)
    if address is not None:
        yield FleetValue("the tunnel address", address, host, layout.place_of("network.tunnels"))
    for name, interface in layout.uplinks:
        place = layout.place_of(f"uplinks.{name}")
        for one in facts.ovn.interfaces:
            if one.name in (interface, bridge_name(name)):
                for text in one.addresses:
                    bare = text.partition("/")[0]
                    yield FleetValue(f"the address on the uplink to {name}", bare, host, place)
