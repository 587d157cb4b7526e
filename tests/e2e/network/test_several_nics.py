# SPDX-License-Identifier: Apache-2.0
"""VMs with several network interfaces on simulated hosts: each has a port of its own, which comes and goes with it."""

from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from vgpuctl.guests.libvirtd.networks import read_entries
from vgpuctl_lab.simulated.layout import simulated_folder

SIZE = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1")
TWO = ("create-vm", "two", *SIZE, "--network", "front", "--nic", "back", "--nic", "default,model=e1000e")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    for tenant in ("acme", "globex"):
        fleet_operator.does("create-tenant", tenant)
    for number, name in enumerate(("front", "back")):
        where = ("--cidr", f"10.{number}.0.0/24", "--host", "sim-001")
        fleet_operator.does("create-network", name, "--tenant", "acme", *where)
    fleet_operator.does("create-network", "theirs", "--tenant", "globex", "--cidr", "10.9.0.0/24", "--host", "sim-001")
    fleet_operator.does("create-network", "far", "--tenant", "acme", "--cidr", "10.8.0.0/24", "--host", "sim-002")
    return fleet_operator


def addresses_of(fleet: lab.LabFolder, network: str) -> Sequence[str]:
    """The addresses that libvirt of sim-001 promises in a network."""
    with libvirt_of(simulated_folder(fleet).inventory, "sim-001") as there:
        return sorted(read_entries(there.connection.networkLookupByName(network).XMLDesc(0)).values())


def test_each_interface_has_its_network_and_a_port_of_its_own(operator: Operator, fleet: lab.LabFolder) -> None:
    dry = operator.json(*TWO, "--nic", "front", "--dry-run")[0]
    assert [address in dry["xml"] for address in ("10.0.0.2", "10.1.0.2", "10.0.0.3")] == [True] * 3
    created = operator.json(*TWO)[0]
    interfaces = ElementTree.fromstring(created["xml"]).findall("devices/interface")
    found = [
        (one.find("source").get("network"), one.find("model").get("type"), one.find("address").get("bus"))  # type: ignore[union-attr]
        for one in interfaces
    ]
    assert found == [("acme.front", "virtio", "0x02"), ("acme.back", "virtio", "0x05"), ("default", "e1000e", "0x06")]
    assert not operator.json(*TWO)[0]["changed"]
    assert addresses_of(fleet, "acme.front") == ["10.0.0.2"]
    assert addresses_of(fleet, "acme.back") == ["10.1.0.2"]
    shown = operator.json("show-vm", "two", "--tenant", "acme")
    macs = [one.find("mac").get("address") for one in interfaces]  # type: ignore[union-attr]
    assert [(one["position"], one["network"], one["address"]) for one in shown["interfaces"]] == [
        (0, "acme/front", "10.0.0.2"),
        (1, "acme/back", "10.1.0.2"),
        (2, "default", None),
    ]
    assert [one["mac_address"] for one in shown["interfaces"]] == macs
    ports = operator.json("show-network", "back", "--tenant", "acme")["ports"]
    assert [(one["vm"], one["port"]["position"]) for one in ports] == [("two", 1)]
    assert operator.json("repair") == []
    operator.does("stop-vm", "two", "--tenant", "acme", "--timeout", "0")
    operator.does("start-vm", "two", "--tenant", "acme")
    assert operator.json("repair") == []
    operator.does("delete-vm", "two", "--tenant", "acme", "--yes", "--timeout", "0")
    assert addresses_of(fleet, "acme.front") == addresses_of(fleet, "acme.back") == []


REFUSED = [
    (("--network", "front", "--nic", "theirs"), "has no network 'theirs'"),
    (("--network", "globex.theirs"), "has no network 'globex.theirs'; on hosts that is a tenant's network"),
    (("--network", "front", "--nic", "far"), "VM no cannot run on sim-001: network acme/far is on sim-002"),
    (("--network", "front", "--nic", "back,security_groups=web"), "only networks carried by OVN have"),
    (("--network", "front", *("--nic", "back") * 9), "8 more network interfaces fit one VM"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_what_no_vm_can_have_is_refused(
    operator: Operator, fleet: lab.LabFolder, arguments: tuple[str, ...], said: str
) -> None:
    refused = operator.is_refused("create-vm", "no", *SIZE, *arguments)
    assert said in refused["message"]
    assert addresses_of(fleet, "acme.front") == []
    assert operator.json("list-vms") == []
