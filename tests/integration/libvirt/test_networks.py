# SPDX-License-Identifier: Apache-2.0
"""Tenants' networks in a real libvirtd: defined, started, their DHCP entries changed while they run, deleted."""

import contextlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.libvirtd_fixture import LocalLibvirtd
from tests.unit.guests.cases import REQUEST, facts, vm
from vgpuctl.errors import NetworkRejected
from vgpuctl.guests.domain.nic_view import PORT_FILTER
from vgpuctl.guests.domain.render import render_domain
from vgpuctl.guests.domain.view import domain_view
from vgpuctl.guests.libvirtd.host_networks import check_network, networks_of
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.networks import LibvirtNetworks, read_entries
from vgpuctl.guests.libvirtd.port_filter import Reach
from vgpuctl.model.network import Attachment, Network, NetworkRequest, NetworkState, Port, mac_address

LONG = "a-tenant-with-a-name-of-sixty-three-characters-which-is-the-most"[:63]
TENANTS = {"10.11.0.0/24": "acme", "10.12.0.0/29": LONG}


def _network(cidr: str, tenant: str, *, isolated: bool = True) -> Network:
    request = NetworkRequest("front", tenant, cidr, dns=("192.0.2.53",), isolated=isolated, host="gpu1")
    return Network(str(uuid.uuid4()), request, NetworkState.CREATING)


def _port(network: Network, number: int) -> Port:
    port_id = str(uuid.uuid4())
    address = str(network.subnet[number])
    return Port(port_id, network.id, str(uuid.uuid4()), 0, mac_address(port_id), address)


@pytest.fixture
def networks(hypervisor: Hypervisor) -> Iterator[LibvirtNetworks]:
    yield LibvirtNetworks(hypervisor)
    for network in hypervisor.connection.listAllNetworks(0):
        if network.isActive():
            network.destroy()
        network.undefine()


def _xml(hypervisor: Hypervisor, network: Network) -> str:
    return str(hypervisor.connection.networkLookupByName(network.host_name).XMLDesc(0))


@pytest.mark.parametrize("cidr", TENANTS)
def test_a_network_comes_with_its_entries_changes_while_it_runs_and_goes(
    cidr: str, networks: LibvirtNetworks, hypervisor: Hypervisor
) -> None:
    network = _network(cidr, TENANTS[cidr])
    ports = [_port(network, number) for number in (2, 3)]
    assert "network defined and started" in networks.ensure(network, [], dry_run=True)
    assert network.host_name not in networks_of(hypervisor)
    assert "network defined and started" in networks.ensure(network, [])
    assert networks.ensure(network, []) == []
    check_network(hypervisor, network.host_name)
    bridge = ElementTree.fromstring(_xml(hypervisor, network)).find("bridge")
    assert bridge is not None
    assert bridge.get("name") == network.bridge
    assert len(network.bridge) <= 15
    assert networks.ensure(network, ports) == [f"{port.address} promised" for port in ports]
    assert networks.ensure(network, ports) == []
    assert read_entries(_xml(hypervisor, network)) == {port.mac_address: port.address for port in ports}
    moved = replace(ports[1], address=str(network.subnet[4]))
    networks.ensure(network, [moved])
    assert read_entries(_xml(hypervisor, network)) == {moved.mac_address: moved.address}
    assert networks.remove(network.host_name, network.id)
    assert not networks.remove(network.host_name, network.id)
    assert network.host_name not in networks_of(hypervisor)


def test_a_stopped_network_is_started_again(networks: LibvirtNetworks, hypervisor: Hypervisor) -> None:
    network = _network("10.11.0.0/24", "acme")
    networks.ensure(network, [])
    hypervisor.connection.networkLookupByName(network.host_name).destroy()
    assert networks.ensure(network, []) == ["network started"]


def test_a_network_of_somebody_else_is_left_alone(networks: LibvirtNetworks, hypervisor: Hypervisor) -> None:
    theirs, ours = _network("10.11.0.0/24", "acme"), _network("10.12.0.0/24", "acme")
    networks.ensure(theirs, [])
    with pytest.raises(NetworkRejected, match=r"has a network acme\.front that is not the tenant's"):
        networks.ensure(ours, [])
    assert not networks.remove(ours.host_name, ours.id)
    check_network(hypervisor, "acme.front")


def test_a_nat_network_is_refused_or_started_as_a_whole(networks: LibvirtNetworks, hypervisor: Hypervisor) -> None:
    """Without NAT in the kernel libvirt reports it; the defined network is still found and removed."""
    network = _network("10.13.0.0/24", "acme", isolated=False)
    try:
        networks.ensure(network, [])
    except NetworkRejected as refused:
        assert "libvirt error" in refused.message
    assert "<forward mode='nat'>" in _xml(hypervisor, network).replace("'nat'/>", "'nat'>")
    assert networks.remove(network.host_name, network.id)


def test_a_port_filter_is_defined_and_a_domain_that_names_it_too(
    networks: LibvirtNetworks, hypervisor: Hypervisor
) -> None:
    network = _network("10.11.0.0/24", "acme")
    port = _port(network, 2)
    networks.ensure(network, [port])
    assert PORT_FILTER in [one.name() for one in hypervisor.connection.listAllNWFilters(0)]
    own = vm(replace(REQUEST, network="front"))
    xml = render_domain(domain_view(own, [], facts(kvm=False), attachments=[Attachment(network, port)]))
    hypervisor.define(xml)
    interface = ElementTree.fromstring(hypervisor.xml(own.domain_name) or "").find("devices/interface")
    assert interface is not None
    found = {parameter.get("name"): parameter.get("value") for parameter in interface.iter("parameter")}
    assert found == {
        "IP": port.address,
        "GATEWAY": network.gateway,
        "NETWORK": "10.11.0.0",
        "MASK": "255.255.255.0",
    }
    mac = interface.find("mac")
    assert mac is not None
    assert mac.get("address") == port.mac_address


def test_the_dhcp_server_answers_known_ports_only(networks: LibvirtNetworks, hypervisor: Hypervisor) -> None:
    network = _network("10.11.0.0/24", "acme")
    networks.ensure(network, [_port(network, 2)])
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"--conf-file=/var/lib/libvirt/dnsmasq/{network.host_name}.conf" in running


PORT = 8022
_SERVE = f"""
import socket, threading
server = socket.create_server(("0.0.0.0", {PORT}))
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind(("0.0.0.0", {PORT}))

def answer():
    while True:
        heard.sendto(*heard.recvfrom(1))

threading.Thread(target=answer, daemon=True).start()
print(1, flush=True)
while True:
    server.accept()[0].close()
"""
# The network's broadcast address, the limited one, and all systems on the link (RFC 1112).
GROUPS = ("10.11.0.255", "255.255.255.255", "224.0.0.1")
_SHOUT = f"""
import socket, sys
guest = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
guest.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
guest.settimeout(2)
guest.sendto(b"?", (sys.argv[1], {PORT}))
guest.recv(1)
"""


@contextlib.contextmanager
def _guest(libvirtd: LocalLibvirtd, bridge: str, address: str, mac: str) -> Iterator[str]:
    """A namespace on a bridge, as a VM would be, by the port `vgt-port`; yields its name. The host serves PORT."""
    name = f"vgt-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        subprocess.run(["ip", "netns", "add", name], check=True)
        stack.callback(subprocess.run, ["ip", "netns", "delete", name], check=True)
        for command in (
            f"ip link add vgt-port type veth peer name vgt-guest netns {name}",
            f"ip link set vgt-port master {bridge} up",
            "ip link set lo up",
            "ip address add 198.51.100.4/32 dev lo",
            "ip address add 203.0.113.1/32 dev lo",
        ):
            subprocess.run(libvirtd.inside(*command.split()), check=True)
        stack.callback(subprocess.run, libvirtd.inside("ip", "address", "flush", "dev", "lo"), check=True)
        for command in (
            f"ip link set vgt-guest address {mac} up",
            f"ip address add {address}/24 dev vgt-guest",
            "ip route add default via 10.11.0.1",
        ):
            subprocess.run(["ip", "-n", name, *command.split()[1:]], check=True)
        server = stack.enter_context(
            subprocess.Popen(libvirtd.inside(sys.executable, "-c", _SERVE), stdout=subprocess.PIPE)
        )
        stack.callback(server.kill)
        assert server.stdout is not None
        assert server.stdout.readline() == b"1\n"
        yield name


def _reaches(guest: str, address: str) -> bool:
    program = f"import socket; socket.create_connection(({address!r}, {PORT}), 2).close()"
    entered = ["ip", "netns", "exec", guest, sys.executable, "-c", program]
    return subprocess.run(entered, capture_output=True, check=False).returncode == 0


def _is_heard(guest: str, address: str) -> bool:
    entered = ["ip", "netns", "exec", guest, sys.executable, "-c", _SHOUT, address]
    return subprocess.run(entered, capture_output=True, check=False).returncode == 0


def test_packets_of_a_port_reach_neither_the_host_nor_other_tenants_gateways(
    networks: LibvirtNetworks, hypervisor: Hypervisor, libvirtd: LocalLibvirtd
) -> None:
    network = _network("10.11.0.0/24", "acme")
    port = _port(network, 7)
    networks.ensure(network, [port])
    own = ("10.11.0.1", "198.51.100.4", "203.0.113.1")
    with _guest(libvirtd, network.bridge, port.address, port.mac_address) as guest:

        def reached() -> list[bool]:
            return [_reaches(guest, address) for address in own]

        assert reached() == [True, True, True]
        assert [_is_heard(guest, address) for address in GROUPS] == [True, True, True]
        binding = hypervisor.connection.nwfilterBindingCreateXML(
            f"<filterbinding><owner><name>guest</name><uuid>{uuid.uuid4()}</uuid></owner><portdev name='vgt-port'/>"
            f"<mac address='{port.mac_address}'/><filterref filter='{PORT_FILTER}'>"
            f"<parameter name='IP' value='{port.address}'/><parameter name='GATEWAY' value='{network.gateway}'/>"
            "<parameter name='NETWORK' value='10.11.0.0'/><parameter name='MASK' value='255.255.255.0'/>"
            "</filterref></filterbinding>"
        )
        try:
            assert reached() == [False, True, True]
            assert not any(_is_heard(guest, address) for address in GROUPS)
            networks.ensure(network, [port], reach=Reach(("198.51.100.4",)))
            assert reached() == [False, False, True]
            networks.ensure(_network("203.0.113.0/29", "umbrella"), [])
            assert reached() == [False, True, False]
        finally:
            binding.delete()
