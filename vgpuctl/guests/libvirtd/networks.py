# SPDX-License-Identifier: Apache-2.0
"""Tenants' networks carried by libvirt on one host: NAT or isolated, addresses by DHCP, every port filtered."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vgpuctl.errors import NetworkRejected
from vgpuctl.guests.domain.nic_view import PORT_FILTER
from vgpuctl.guests.libvirt_errors import error_code, libvirt_module, translate, translated
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.port_filter import Reach, read_networks, render_port_filter, rules_of
from vgpuctl.guests.templating import render_template
from vgpuctl.guests.xml_reader import read_xml
from vgpuctl.model.network import DEFAULT_MTU, Network, Port, interface_name

NOTHING_KNOWN = Reach()


@dataclass(frozen=True)
class MadeNetwork:
    """A libvirt network that vgpuctl made. uuid: the network's id in its store."""

    name: str
    uuid: str


class LibvirtNetworks:
    """The tenants' networks of one host, over the hypervisor's connection. Every method may be repeated."""

    def __init__(self, hypervisor: Hypervisor) -> None:
        self._hypervisor = hypervisor

    def ensure(
        self, network: Network, ports: Sequence[Port], *, reach: Reach = NOTHING_KNOWN, dry_run: bool = False
    ) -> list[str]:
        """Make the host's network what the store says, with a DHCP entry for each port and for nobody else.

        reach: what guests of the host may reach; ports of running VMs follow. Returns what had to be done, nothing
        when all was so. A running network keeps running. Raises NetworkRejected.
        """
        done: list[str] = []
        handle = self._find(network.host_name)
        what = f"network {network.host_name} on {self._hypervisor.host}"
        if handle is None:
            done.append("network defined and started")
            if dry_run:
                return done
            xml = render_network(network, ports)
            with translated(f"define {what}", NetworkRejected):
                handle = self._connection.networkDefineXML(xml)
        else:
            self._refuse_other(handle, network)
            if not handle.isActive() or not handle.autostart():
                done.append("network started")
        if not dry_run:
            with translated(f"start {what}", NetworkRejected):
                if not handle.autostart():
                    handle.setAutostart(1)
                if not handle.isActive():
                    handle.create()
        done += self._ensure_filter(reach, dry_run=dry_run)  # after the network, which is one of those that it names
        return done + self._ensure_entries(handle, network, ports, dry_run=dry_run)

    def remove(self, name: str, network_id: str) -> bool:
        """End and undefine the network of this name and UUID; gone already is fine. Returns whether it was there."""
        handle = self._find(name)
        if handle is None:
            return False
        with translated(f"remove network {name} on {self._hypervisor.host}", NetworkRejected):
            if handle.UUIDString() != network_id:
                return False
            if handle.isActive():
                handle.destroy()
            handle.undefine()
        return True

    def addresses(self, network: Network) -> dict[str, str]:
        """The DHCP entries that the host has for a network: MAC address → address; none where it is not there."""
        handle = self._find(network.host_name)
        if handle is None:
            return {}
        with translated(f"read network {network.host_name} on {self._hypervisor.host}", NetworkRejected):
            return read_entries(handle.XMLDesc(0)) if handle.UUIDString() == network.id else {}

    def made(self) -> list[MadeNetwork]:
        """The networks that vgpuctl made, whoever's store: the bridge's name derives from the network's UUID."""
        with translated(f"list the networks on {self._hypervisor.host}", NetworkRejected):
            found = [
                MadeNetwork(handle.name(), handle.UUIDString())
                for handle in self._connection.listAllNetworks(0)
                if read_bridge(handle.XMLDesc(0)) == interface_name(handle.UUIDString())
            ]
        return sorted(found, key=lambda network: network.name)

    def _ensure_entries(self, handle: Any, network: Network, ports: Sequence[Port], *, dry_run: bool) -> list[str]:
        library = libvirt_module()
        there = read_entries(handle.XMLDesc(0))
        wanted = {port.mac_address: port.address for port in ports}
        changes = [
            (library.VIR_NETWORK_UPDATE_COMMAND_DELETE, mac, address, "released")
            for mac, address in there.items()
            if wanted.get(mac) != address
        ] + [
            (library.VIR_NETWORK_UPDATE_COMMAND_ADD_LAST, mac, address, "promised")
            for mac, address in wanted.items()
            if there.get(mac) != address
        ]
        both = library.VIR_NETWORK_UPDATE_AFFECT_LIVE | library.VIR_NETWORK_UPDATE_AFFECT_CONFIG
        for command, mac, address, _word in changes if not dry_run else ():
            with translated(
                f"change the DHCP entries of {network.host_name} on {self._hypervisor.host}", NetworkRejected
            ):
                entry = f"<host mac='{mac}' ip='{address}'/>"
                handle.update(command, library.VIR_NETWORK_SECTION_IP_DHCP_HOST, 0, entry, both)
        return [f"{address} {word}" for _command, _mac, address, word in changes]

    def _ensure_filter(self, reach: Reach, *, dry_run: bool) -> list[str]:
        """Define the filter of ports; libvirt's test driver has no filters."""
        if self._connection.getType() != "QEMU":
            return []
        library = libvirt_module()
        with translated(f"list the networks on {self._hypervisor.host}", NetworkRejected):
            networks = read_networks(handle.XMLDesc(0) for handle in self._connection.listAllNetworks(0))
        wanted = render_port_filter(reach, networks)
        with translated(f"define the filter of ports on {self._hypervisor.host}", NetworkRejected):
            with contextlib.suppress(library.libvirtError):
                there = self._connection.nwfilterLookupByName(PORT_FILTER)
                if rules_of(there.XMLDesc(0)) == rules_of(wanted):
                    return []
            if not dry_run:
                self._connection.nwfilterDefineXML(wanted)
        return ["filter of ports defined"]

    def _refuse_other(self, handle: Any, network: Network) -> None:
        if handle.UUIDString() != network.id:
            raise NetworkRejected(
                f"{self._hypervisor.host} has a network {network.host_name} that is not the tenant's",
                hint=f"look at it with `virsh net-dumpxml {network.host_name}` and remove it, or choose another name",
            )

    def _find(self, name: str) -> Any:
        library = libvirt_module()
        try:
            return self._connection.networkLookupByName(name)
        except library.libvirtError as refused:
            if error_code(refused) == library.VIR_ERR_NO_NETWORK:
                return None
            raise translate(refused, f"find network {name} on {self._hypervisor.host}", NetworkRejected) from refused

    @property
    def _connection(self) -> Any:
        return self._hypervisor.connection


def render_network(network: Network, ports: Sequence[Port]) -> str:
    """Render libvirt's XML of a tenant's network with the DHCP entries of its ports."""
    return render_template("network.xml.j2", network=network, ports=ports, mtu=DEFAULT_MTU)


def read_entries(xml: str) -> dict[str, str]:
    """Read the DHCP entries of a network's XML: MAC address → address."""
    hosts = read_xml(xml).findall("ip/dhcp/host")
    return {host.get("mac", "").lower(): host.get("ip", "") for host in hosts}


def read_bridge(xml: str) -> str | None:
    """Read the name of a network's bridge from its XML."""
    bridge = read_xml(xml).find("bridge")
    return None if bridge is None else bridge.get("name")
