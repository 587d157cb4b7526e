# SPDX-License-Identifier: Apache-2.0
"""The path of a tenant's packet by a real northd's flows (ovn-trace): same addresses, no spoofing, gateways."""

import re
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.ovn_fixture import LocalOvn
from vgpuctl.model.http_balancing import BalancerProtocol
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import Backend, Network, NetworkRequest, NetworkState, Port, mac_address
from vgpuctl.model.security_rule import Protocol, Rule
from vgpuctl.model.vpc import (
    DirectConnect,
    ExternalNetwork,
    FloatingIp,
    Peering,
    PortForward,
    PortProtocol,
    SecurityGroup,
    Vpc,
    VpcPort,
    ovn_name,
)
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress
from vgpuctl.ovn.rows import Row
from vgpuctl.ovn.southbound import Southbound
from vgpuctl.ovn.topology import external_owner, external_rows, tenant_owner, vpc_rows

EXTERNAL = ExternalNetwork(
    "internet", "203.0.113.0/24", "203.0.113.1", "203.0.113.10", "203.0.113.99", "provider", 7, ("gpu1", "gpu2"),
    ("192.0.2.0/24",),
)  # fmt: skip
CHASSIS = ("gpu1", "gpu2")


def network(tenant: str, name: str = "front", cidr: str = "10.0.0.0/24", *, isolated: bool = False) -> Network:
    """A network whose id follows from its names."""
    request = NetworkRequest(name, tenant, cidr, ("192.0.2.53",), isolated=isolated, backend=Backend.OVN)
    return Network(str(uuid.uuid5(uuid.NAMESPACE_URL, f"{tenant}/{name}")), request, NetworkState.CREATED)


def port(of: Network, vm: str, number: int, *groups: str, bandwidth_mbps: int | None = None) -> VpcPort:
    """The port of a VM with the network's n-th address."""
    port_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{of.printed_name}/{vm}"))
    made = Port(port_id, of.id, str(uuid.uuid4()), 0, mac_address(port_id), str(of.subnet[number]))
    return VpcPort(made, vm, groups, bandwidth_mbps)


def rows(*vpcs: Vpc) -> dict[str, list[Row]]:
    """The rows of tenants and of the external network."""
    return {
        external_owner(EXTERNAL.name): external_rows(EXTERNAL),
        **{tenant_owner(vpc.tenant): vpc_rows(vpc) for vpc in vpcs},
    }


ACME = network("acme")
GLOBEX = network("globex")
BACK = network("acme", "back", "10.0.1.0/24")
WEB = SecurityGroup("web", (Rule(Protocol.TCP, (80, 80)), Rule(Protocol.TCP, (8000, 8010), "10.9.0.0/24")))
VPC = Vpc(
    "acme",
    (ACME, BACK),
    (port(ACME, "a", 2), port(ACME, "b", 3), port(BACK, "c", 2, "web"), port(BACK, "d", 3, "default")),
    (WEB,),
    EXTERNAL,
    "203.0.113.10",
)
OTHER = Vpc("globex", (GLOBEX,), (port(GLOBEX, "a", 2), port(GLOBEX, "b", 3)), (), EXTERNAL, "203.0.113.11")


class Traces:
    """Asks where packets go."""

    def __init__(self, central: LocalOvn) -> None:
        self.central = central

    def bind(self, *vpcs: Vpc) -> None:
        """Let hosts claim the ports and the gateways, as their ovn-controllers do."""
        self.central.sync()
        for vpc in vpcs:
            for number, one in enumerate(vpc.ports):
                self.central.sbctl("lsp-bind", one.port.id, CHASSIS[number % 2])
        self.central.sync()

    def send(self, vpc: Vpc, vm: str, to: str, match: str = "icmp4.type == 8", **changed: str) -> str:
        """The ports by which a VM's packet to an address leaves, empty when it is dropped."""
        sender = vpc.ports_by_vm[vm].port
        home = next(one for one in vpc.networks if one.id == sender.network_id)
        neighbours = {
            other.port.address: other.port.mac_address for other in vpc.ports if other.port.network_id == home.id
        }
        router = mac_address(f"{home.id}/gateway")
        fields = {
            "inport": f'"{sender.id}"',
            "eth.src": sender.mac_address,
            "eth.dst": neighbours.get(to, router),
            "ip4.src": sender.address,
            "ip4.dst": to,
            "ip.ttl": "64",
        } | changed
        flow = " && ".join(f"{name} == {value}" for name, value in fields.items())
        told = self.central.trace(ovn_name("s", home.id), f"{flow} && {match}", "--ct=new", "--ct=new", "--ct=new")
        return told


def outputs(told: str) -> list[str]:
    """The ports that a trace's packet leaves by."""
    return re.findall(r'output\("([^"]+)"\)', told)


@pytest.fixture(scope="module")
def traces(central: LocalOvn) -> Iterator[Traces]:
    for number, chassis in enumerate(CHASSIS, start=1):
        central.sbctl("chassis-add", chassis, "geneve", f"127.0.0.{number}")
    yield Traces(central)


@pytest.fixture
def two_tenants(traces: Traces, northbound: Northbound) -> Traces:
    northbound.apply(rows(VPC, OTHER))
    traces.bind(VPC, OTHER)
    return traces


def test_a_second_apply_changes_nothing_and_a_dry_run_writes_nothing(central: LocalOvn, northbound: Northbound) -> None:
    first = northbound.apply(rows(VPC, OTHER), dry_run=True)
    assert {change.word for change in first} == {"created"}
    assert central.nbctl("--format=csv", "--no-headings", "--columns=name", "list", "Logical_Switch") == ""
    assert northbound.apply(rows(VPC, OTHER)) == first
    assert northbound.apply(rows(VPC, OTHER)) == []
    changed = northbound.apply(rows(replace(VPC, ports=VPC.ports[1:])))
    assert {(change.table, change.word) for change in changed} == {
        ("Logical_Switch_Port", "removed"),
        ("Logical_Switch", "changed"),
        ("Port_Group", "changed"),
    }
    assert {change.word for change in northbound.apply({tenant_owner("acme"): []})} == {"removed"}
    assert northbound.owners() == {tenant_owner("globex"), external_owner("internet")}
    northbound.apply({owner: [] for owner in northbound.owners()})
    for table in ("Logical_Switch", "Logical_Router", "NAT", "ACL", "Port_Group", "DHCP_Options", "Load_Balancer"):
        assert central.nbctl("--format=csv", "--no-headings", "--columns=_uuid", "list", table) == "", table


def test_a_tenant_reaches_its_own_and_never_another_with_the_same_addresses(two_tenants: Traces) -> None:
    for vpc in (VPC, OTHER):
        told = two_tenants.send(vpc, "a", "10.0.0.3")
        assert outputs(told) == [vpc.ports_by_vm["b"].port.id], told
    # The other tenant's MAC address is nobody's here.
    stranger = OTHER.ports_by_vm["b"].port.mac_address
    assert outputs(two_tenants.send(VPC, "a", "10.0.0.3", **{"eth.dst": stranger})) == []


def test_networks_of_a_tenant_are_routed_to_one_another(two_tenants: Traces) -> None:
    told = two_tenants.send(VPC, "a", "10.0.1.3")
    assert outputs(told) == [VPC.ports_by_vm["d"].port.id], told


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"ip4.src": "10.0.0.3"}, "icmp4.type == 8"),
        ({"eth.src": "52:00:00:00:00:99"}, "icmp4.type == 8"),
        ({"ip4.src": "192.0.2.1"}, "udp.dst == 53"),
    ],
    ids=["address", "mac", "foreign-address"],
)
def test_a_spoofed_packet_is_dropped(two_tenants: Traces, changed: dict[str, str], match: str) -> None:
    assert outputs(two_tenants.send(VPC, "a", "10.0.0.3", match, **changed)) == []


def test_a_spoofed_arp_answer_and_a_foreign_dhcp_server_are_dropped(two_tenants: Traces) -> None:
    sender, switch = VPC.ports_by_vm["a"].port, ovn_name("s", ACME.id)
    arp = f'inport == "{sender.id}" && eth.src == {sender.mac_address} && eth.dst == ff:ff:ff:ff:ff:ff && arp.op == 2'
    own = f"{arp} && arp.sha == {sender.mac_address} && arp.spa == {sender.address} && arp.tpa == 10.0.0.3"
    false = f"{arp} && arp.sha == {sender.mac_address} && arp.spa == 10.0.0.1 && arp.tpa == 10.0.0.3"
    assert VPC.ports_by_vm["b"].port.id in outputs(two_tenants.central.trace(switch, own))
    assert outputs(two_tenants.central.trace(switch, false)) == []
    told = two_tenants.send(VPC, "a", "10.0.0.3", "udp.src == 67 && udp.dst == 68")
    assert outputs(told) == []


def test_inbound_is_denied_but_for_what_a_group_allows(two_tenants: Traces) -> None:
    target = VPC.ports_by_vm["c"].port.id
    assert outputs(two_tenants.send(VPC, "a", "10.0.1.2", "tcp.dst == 80")) == [target]
    for refused in ("tcp.dst == 443", "udp.dst == 80", "tcp.dst == 8000", "icmp4.type == 8"):
        assert outputs(two_tenants.send(VPC, "a", "10.0.1.2", refused)) == [], refused


def test_management_is_out_of_reach_and_the_external_network_sees_the_gateways_address(two_tenants: Traces) -> None:
    told = two_tenants.send(VPC, "a", "198.51.100.7", "udp.dst == 53")
    # Newer versions of ovn-trace also follow the ARP request for the gateway.
    assert set(outputs(told)) == {ovn_name("x", "internet", "localnet")}, told
    assert "ct_snat" in told or "203.0.113.10" in two_tenants.central.nbctl("list", "NAT")
    assert outputs(two_tenants.send(VPC, "a", "192.0.2.9", "tcp.dst == 22")) == []


def test_an_isolated_network_has_no_way_out(traces: Traces, northbound: Northbound) -> None:
    inner = network("acme", "inner", "10.0.2.0/24", isolated=True)
    vpc = replace(VPC, networks=(*VPC.networks, inner), ports=(*VPC.ports, port(inner, "e", 2), port(inner, "f", 3)))
    northbound.apply(rows(vpc))
    traces.bind(vpc)
    assert outputs(traces.send(vpc, "e", "10.0.2.3")) == [vpc.ports_by_vm["f"].port.id]
    for there in ("198.51.100.7", "10.0.0.2"):
        assert outputs(traces.send(vpc, "e", there, "udp.dst == 53")) == []


def test_floating_ips_and_forwarded_ports_reach_their_vm(traces: Traces, northbound: Northbound) -> None:
    vpc = replace(
        VPC,
        floating_ips=(FloatingIp("c", "203.0.113.20"),),
        forwards=(PortForward(PortProtocol.TCP, "203.0.113.10", 8080, "c", 80),),
    )
    northbound.apply(rows(vpc))
    traces.bind(vpc)
    localnet, switch = ovn_name("x", "internet", "localnet"), ovn_name("x", "internet")
    router = mac_address("acme/external")
    packet = (
        f'inport == "{localnet}" && eth.src == 52:00:00:00:00:01 && eth.dst == {router} && ip4.src == 198.51.100.7 && '
        "ip.ttl == 64 && "
    )
    target = vpc.ports_by_vm["c"].port.id
    for inside, expected in (
        ("ip4.dst == 203.0.113.20 && tcp.dst == 80", [target]),
        ("ip4.dst == 203.0.113.20 && tcp.dst == 22", []),
        ("ip4.dst == 203.0.113.10 && tcp.dst == 8080", [target]),
        ("ip4.dst == 203.0.113.10 && tcp.dst == 8081", []),
    ):
        told = traces.central.trace(switch, packet + inside, "--ct=new", "--ct=new", "--ct=new", "--ct=new")
        assert outputs(told) == expected, (inside, told)


def test_peered_tenants_reach_one_another_as_their_groups_allow(traces: Traces, northbound: Northbound) -> None:
    theirs = network("globex", "front", "10.5.0.0/24")
    open_group = SecurityGroup("peers", (Rule(source="10.0.0.0/16"),))
    ours = replace(VPC, peerings=(Peering("globex", 3, (theirs,)),))
    other = Vpc(
        "globex", (theirs,), (port(theirs, "g", 2, "peers"), port(theirs, "h", 3)), (open_group,),
        peerings=(Peering("acme", 3, VPC.networks),),
    )  # fmt: skip
    northbound.apply(rows(ours, other))
    traces.bind(ours, other)
    assert outputs(traces.send(ours, "a", "10.5.0.2")) == [other.ports_by_vm["g"].port.id]
    assert outputs(traces.send(ours, "a", "10.5.0.3")) == []
    northbound.apply(rows(VPC, replace(other, peerings=())))
    traces.central.sync()
    assert other.ports_by_vm["g"].port.id not in outputs(traces.send(VPC, "a", "10.5.0.2"))


def test_a_dead_backend_gets_no_connection(traces: Traces, northbound: Northbound) -> None:
    balanced = replace(
        VPC,
        ports=(port(ACME, "a", 2), port(BACK, "c", 2, "web"), port(BACK, "d", 3, "web")),
        balancers=(LoadBalancer("shop", "10.0.1.100", 80, BalancerProtocol.TCP, ("c", "d"), 80),),
    )
    northbound.apply(rows(balanced))
    traces.bind(balanced)
    monitors = traces.central.sbctl(
        "--format=csv", "--no-headings", "--columns=logical_port", "list", "Service_Monitor"
    )
    assert {line.strip('"') for line in monitors.split()} == {balanced.ports_by_vm[vm].port.id for vm in "cd"}
    for dead in "cd":
        alive = "d" if dead == "c" else "c"
        for vm, status in ((dead, "offline"), (alive, "online")):
            found = traces.central.sbctl(
                "--format=csv", "--no-headings", "--columns=_uuid", "find", "Service_Monitor",
                f'logical_port="{balanced.ports_by_vm[vm].port.id}"',
            )  # fmt: skip
            traces.central.sbctl("set", "Service_Monitor", found.strip(), f"status={status}")
        traces.central.sync()
        own = [balanced.ports_by_vm[vm].port for vm in "cd"]
        seen = Southbound(NorthboundAddress(traces.central.southbound)).networks([one.id for one in own])
        assert {one.id: one.address for one in own} == {one.port: one.address for one in seen.checks}
        silent = [one.port for one, status in seen.checks.items() if status != "online"]
        assert silent == [balanced.ports_by_vm[dead].port.id]
        assert set(seen.ports) == {one.id for one in own}
        assert {one.chassis for one in seen.ports.values()} <= set(CHASSIS)
        told = traces.send(balanced, "a", "10.0.1.100", "tcp.dst == 80")
        assert outputs(told) == [balanced.ports_by_vm[alive].port.id], told


def test_lines_limits_and_dhcp_are_in_the_flows(traces: Traces, northbound: Northbound) -> None:
    vpc = replace(
        VPC,
        ports=(port(ACME, "a", 2, bandwidth_mbps=100),),
        direct_connects=(DirectConnect("back", "provider", 42),),
    )
    northbound.apply(rows(vpc))
    traces.bind(vpc)
    flows = traces.central.sbctl("lflow-list")
    assert "set_meter(100000, 10000)" in flows
    assert re.search(
        rf"put_dhcp_opts\(offerip = {vpc.ports[0].port.address}, .*mtu = 1442.*router = 10\.0\.0\.1", flows
    )
    bindings = traces.central.sbctl("find", "Port_Binding", "type=localnet", f'logical_port="{ovn_name("l", BACK.id)}"')
    assert re.search(r"tag +: 42", bindings)
    assert "network_name=provider" in bindings
