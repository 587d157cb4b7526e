# SPDX-License-Identifier: Apache-2.0
"""The examples of commands for networks, on an OVN central."""

import pytest

from tests.e2e.examples.scene import Run, Scene, Stage, commands_of, play, scene
from tests.e2e.examples.stage import NamedFleet, named_fleet, stage
from tests.lab.simulated_fixtures import make_chassis
from tests.ovn_fixture import LocalOvn, central

__all__ = ["central", "named_fleet", "stage"]
pytestmark = pytest.mark.long(
    "tests/unit/cli/test_examples.py::test_a_command_has_two_examples_that_it_takes",
    "tests/e2e/network/test_vpc_objects.py::test_commands_make_what_a_tenant_s_file_makes_and_take_it_away",
    "tests/e2e/network/test_networks.py::test_a_network_is_made_once_and_its_vms_get_addresses_that_come_back",
    "tests/e2e/network/test_ovn_networks.py::test_external_networks_are_declared_changed_and_deleted",
    "tests/e2e/network/test_explain_network.py::test_ovn_and_the_store_name_the_same_rules",
)

FRONT = "create-network acme/front --cidr 10.0.0.0/24"
VMS = tuple(f"create-vm acme/{name} --memory 96MiB --vcpus 1 --network front" for name in ("web-1", "web-2"))
INTERNET = (
    "create-external-network internet --cidr 192.0.2.0/24 --gateway 192.0.2.1"
    " --pool 192.0.2.10-192.0.2.99 --physical-network provider"
)
DMZ = (
    "create-external-network dmz --cidr 198.51.100.0/24 --gateway 198.51.100.1"
    " --pool 198.51.100.10-198.51.100.20 --physical-network provider --vlan 7"
)
GATEWAY = (FRONT, INTERNET, "create-gateway internet -t acme")
FORWARDS = ("create-port-forward 8080 --vm web-1 --vm-port 80 -t acme", "create-port-forward udp/53 --vm web-1 -t acme")
WEB, DB = "create-security-group acme/web --rule tcp:80", "create-security-group acme/db --rule tcp:5432@group:web"
PARTNERS = "create-address-group acme/partners --address 192.0.2.0/24 --address 198.51.100.7"
SHOP = "create-load-balancer acme/shop --network front --port 80 --vm web-1 --vm web-2"
DNS = "create-load-balancer acme/dns --network front --port 53 --protocol udp --vm web-1"
OFFICE = "create-vpn-connection acme/office --network front --peer-prefix 192.168.10.0/24"
PEER = "create-peering umbrella -t acme"
ROUTE = "create-route 10.66.0.0/16 --via fw-1 --via fw-2 -t acme"
DIRECT = "create-direct-connect front --physical-network provider --vlan 42 -t acme"
OBJECTS = "list-vpc-objects -t acme"
NETWORKS = "list-networks -A -o name"
EXTERNALS = "list-external-networks -o name"

SCENES: dict[str, Scene] = {
    "create-network": scene(Run("front", then={NETWORKS: "acme/front"}), Run("back", then={NETWORKS: "!back"})),
    "list-networks": scene(Run("10.0.0.0/24"), Run("acme/front"), first=(FRONT,)),
    "show-network": scene(Run("10.0.0.0/24"), Run('"front"'), first=(FRONT,)),
    "delete-network": scene(
        Run("front", then={NETWORKS: "acme/front"}), Run("front", then={NETWORKS: "!front"}), first=(FRONT,)
    ),
    "create-external-network": scene(
        Run("internet", then={EXTERNALS: "internet"}), Run("dmz", then={EXTERNALS: "dmz"})
    ),
    "list-external-networks": scene(Run("192.0.2.0/24"), Run('"internet"'), first=(INTERNET,)),
    "show-external-network": scene(Run("192.0.2.0/24"), Run('"internet"'), first=(INTERNET,)),
    "delete-external-network": scene(
        Run("dmz", then={EXTERNALS: "dmz"}), Run("dmz", then={EXTERNALS: "!dmz"}), first=(DMZ,)
    ),
    "create-gateway": scene(
        Run("gateway", then={OBJECTS: "gateway"}), Run("gateway", then={OBJECTS: "gateway"}), first=GATEWAY[:2]
    ),
    "delete-gateway": scene(
        Run("gateway", then={OBJECTS: "gateway"}), Run("gateway", then={OBJECTS: "no objects"}), first=GATEWAY
    ),
    "create-floating-ip": scene(Run("192.0.2.", then={OBJECTS: "floating-ip"}), Run("web-1"), first=(*GATEWAY, VMS[0])),
    "delete-floating-ip": scene(
        Run("web-1", then={OBJECTS: "floating-ip"}),
        Run("web-1", then={OBJECTS: "!floating-ip"}),
        first=(*GATEWAY, VMS[0], "create-floating-ip web-1 -t acme"),
    ),
    "create-port-forward": scene(
        Run("8080", then={OBJECTS: "8080"}), Run("udp/53", then={OBJECTS: "udp/53"}), first=(*GATEWAY, VMS[0])
    ),
    "delete-port-forward": scene(
        Run("8080", then={OBJECTS: "8080"}),
        Run("udp/53", then={OBJECTS: "!udp/53"}),
        first=(*GATEWAY, VMS[0], *FORWARDS),
    ),
    "create-address-group": scene(
        Run("partners: created", then={OBJECTS: "198.51.100.7/32"}), Run("blocked", then={OBJECTS: "!blocked"})
    ),
    "set-address-group": scene(
        Run("partners: changed", then={OBJECTS: "203.0.113.0/28"}),
        Run("partners: changed", then={OBJECTS: "198.51.100.7/32"}),
        first=(PARTNERS,),
    ),
    "delete-address-group": scene(
        Run("partners", then={OBJECTS: "partners"}), Run("partners", then={OBJECTS: "!partners"}), first=(PARTNERS,)
    ),
    "create-egress-policy": scene(
        Run("egress-policy: created", then={OBJECTS: "no objects"}), Run("created", then={OBJECTS: "deny traffic"})
    ),
    "delete-egress-policy": scene(
        Run("egress-policy", then={OBJECTS: "deny traffic"}),
        Run("egress-policy", then={OBJECTS: "no objects"}),
        first=("create-egress-policy deny -t acme",),
    ),
    "explain-network": scene(Run("answered by: ovn-trace"), Run('"is_allowed": false'), first=(FRONT, *VMS)),
    "create-security-group": scene(Run("web", then={OBJECTS: "tcp:80"}), Run("db", then={OBJECTS: "tcp:5432"})),
    "delete-security-group": scene(
        Run("db", then={OBJECTS: "tcp:5432"}), Run("db", then={OBJECTS: "!tcp:5432"}), first=(WEB, DB)
    ),
    "create-security-rule": scene(
        Run("acme/web: changed", then={OBJECTS: "tcp:443"}),
        Run("dry run: security group acme/web: changed", then={OBJECTS: "!tcp:22"}),
        Run(
            "never matches: address group blocked is empty",
            first=("create-address-group acme/blocked",),
            then={OBJECTS: "egress:deny:tcp:25,log"},
        ),
        first=(WEB,),
    ),
    "delete-security-rule": scene(
        Run("dry run: security group acme/web: changed", then={OBJECTS: "tcp:443"}),
        Run("acme/web: changed", then={OBJECTS: "!tcp:443"}),
        first=(WEB, "create-security-rule acme/web tcp:443"),
    ),
    "create-load-balancer": scene(
        Run("shop", then={OBJECTS: "shop"}), Run("dns", then={OBJECTS: "dns"}), first=(FRONT, *VMS)
    ),
    "set-load-balancer": scene(
        Run("shop", then={OBJECTS: "!web-2"}),
        Run("shop", then={f"{OBJECTS} -o json": '"health_failures": 5'}),
        Run("shop", then={f"{OBJECTS} -o json": '"draining": ['}),
        first=(FRONT, *VMS, SHOP),
    ),
    "show-load-balancer": scene(Run("10.0.0.253:80"), Run('"members"'), first=(FRONT, *VMS, SHOP)),
    "delete-load-balancer": scene(
        Run("dns", then={OBJECTS: "dns"}), Run("shop", then={OBJECTS: "!shop"}), first=(FRONT, *VMS, SHOP, DNS)
    ),
    "create-vpn-connection": scene(
        Run("office", then={OBJECTS: "192.168.10.0/24"}),
        Run("lab", then={OBJECTS: "198.51.100.7:51820"}),
        first=GATEWAY,
    ),
    "set-vpn-connection": scene(
        Run("office", then={OBJECTS: "192.168.11.0/24"}),
        Run("office", then={f"{OBJECTS} -o json": '"keepalive_s": null'}),
        first=(*GATEWAY, OFFICE),
    ),
    "rotate-vpn-keys": scene(Run("PrivateKey = "), Run("office"), first=(*GATEWAY, OFFICE)),
    "delete-vpn-connection": scene(
        Run("office", then={OBJECTS: "office"}), Run("office", then={OBJECTS: "!office"}), first=(*GATEWAY, OFFICE)
    ),
    "create-route": scene(
        Run("tenant acme has no VM fw-2, so nothing is sent to it", then={OBJECTS: "via fw-1, fw-2"}),
        Run("10.99.0.0/16: created", then={OBJECTS: "via discard"}),
    ),
    "set-route": scene(
        Run("10.66.0.0/16: changed", then={OBJECTS: "via fw-2, fw-3"}),
        Run("dry run", then={OBJECTS: "via fw-2, fw-3"}),
        first=(ROUTE,),
    ),
    "delete-route": scene(
        Run("10.66.0.0/16", then={OBJECTS: "via fw-1"}),
        Run("10.66.0.0/16", then={OBJECTS: "!fw-1"}),
        first=(ROUTE,),
    ),
    "create-peering": scene(
        Run("umbrella", then={OBJECTS: "umbrella"}), Run("acme", then={"list-vpc-objects -t umbrella": "acme"})
    ),
    "delete-peering": scene(
        Run("umbrella", then={OBJECTS: "umbrella"}), Run("umbrella", then={OBJECTS: "!umbrella"}), first=(PEER,)
    ),
    "create-direct-connect": scene(
        Run("front", then={OBJECTS: "42"}), Run("front", then={OBJECTS: "42"}), first=(FRONT,)
    ),
    "delete-direct-connect": scene(
        Run("front", then={OBJECTS: "42"}), Run("front", then={OBJECTS: "!42"}), first=(FRONT, DIRECT)
    ),
    "list-security-rules": scene(Run("no rule allows it"), Run('"tcp:80"'), first=(FRONT, WEB, *VMS)),
    "list-vpc-objects": scene(
        Run("gateway"), Run('"web-1"'), first=(*GATEWAY, VMS[0], "create-floating-ip web-1 -t acme")
    ),
    "create-certificate": scene(Run("ovn-central"), Run("pki")),
}


@pytest.fixture(scope="module")
def chassis(named_fleet: NamedFleet, central: LocalOvn) -> None:
    make_chassis(named_fleet.folder)
    central.bind_ports()


@pytest.fixture
def variables(central: LocalOvn, chassis: None) -> dict[str, str]:
    return {"VGPUCTL_OVN_NORTHBOUND": central.northbound, "VGPUCTL_OVN_SOUTHBOUND": central.southbound}


@pytest.mark.parametrize("name", commands_of("network"))
def test_the_examples_of_a_command_do_what_they_say(stage: Stage, name: str) -> None:
    play(stage, name, SCENES[name])
