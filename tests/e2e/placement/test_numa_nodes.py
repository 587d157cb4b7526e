# SPDX-License-Identifier: Apache-2.0
"""VMs on a simulated host with two NUMA nodes and a GPU at each: no node is promised twice, and libvirt is told so."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import simulated_fleet
from vgpuctl_lab.simulated.layout import simulated_folder

TENANT = ("--tenant", "acme")
# Each node of the host has 256 GiB, and the host keeps 2 GiB for itself.
LARGE = ("--gpu", "A40-8Q", "--memory", "200GiB", "--vcpus", "4")
NO_NETWORK = ("--network", "none")


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One host with an A40 at node 0 and one at node 1, each of 16 cores with two threads and 256 GiB."""
    home: Path = tmp_path_factory.mktemp("numa")
    with simulated_fleet(home, 1, "a40*2") as folder:
        found = Operator(home, simulated_folder(folder).inventory, f"sqlite:///{home}/store.db")
        found.does("create-tenant", "acme")
        found.does("list-gpus", "--refresh")
        yield found


@pytest.fixture(autouse=True)
def no_vms(operator: Operator) -> Iterator[None]:
    """Each test begins with an empty host."""
    yield
    operator.delete_all_vms()


def defined(operator: Operator, name: str) -> ElementTree.Element:
    """The domain of a VM as the host's libvirt has it."""
    (there,) = [one["vm"] for one in operator.json("list-vms") if one["vm"]["request"]["name"] == name]
    with libvirt_of(operator.inventory, "sim-001") as hypervisor:
        (domain,) = [one for one in hypervisor.domains() if one.uuid == there["uuid"]]
        return ElementTree.fromstring(hypervisor.xml(domain.name) or "")


def strict_node(domain: ElementTree.Element) -> str | None:
    memory = domain.find("numatune/memory")
    assert memory is not None
    assert memory.get("mode") == "strict"
    return memory.get("nodeset")


def pins(domain: ElementTree.Element) -> set[int]:
    return {int(one.get("cpuset", "")) for one in domain.iterfind("cputune/vcpupin")}


def test_strict_vms_never_have_more_than_their_node(operator: Operator) -> None:
    assert operator.json("capacity", *LARGE)["now"] == 2
    operator.does("create-vm", "large-1", *TENANT, *LARGE, *NO_NETWORK)
    assert operator.json("capacity", *LARGE)["now"] == 1
    operator.does("create-vm", "large-2", *TENANT, *LARGE, *NO_NETWORK)
    domains = [defined(operator, name) for name in ("large-1", "large-2")]
    assert sorted(str(strict_node(one)) for one in domains) == ["0", "1"]
    for domain in domains:
        first = 32 * int(str(strict_node(domain)))
        assert pins(domain) <= set(range(first, first + 32)) and len(pins(domain)) == 4
    assert operator.json("capacity", *LARGE)["now"] == 0
    (explained,) = operator.json("explain-vm", "large-3", *TENANT, *LARGE)
    assert not explained["fits"]
    assert {one["code"] for one in explained["answers"]} == {"host-memory"}
    refused = operator.is_refused("create-vm", "large-3", *TENANT, *LARGE, *NO_NETWORK)
    assert refused["reference"] == "no-capacity"
    assert "node 0: 28 of 32 pinned vCPUs, 55 GiB of 255 GiB" in str(refused["context"])
    smaller = ("--gpu", "A40-8Q", "--memory", "50GiB", "--vcpus", "4")
    assert operator.json("capacity", *smaller)["now"] == 2
    operator.does("create-vm", "small", *TENANT, *smaller, *NO_NETWORK)
    cores = [{(cpu // 32, cpu % 16) for cpu in pins(one)} for one in (*domains, defined(operator, "small"))]
    assert [len(one) for one in cores] == [2, 2, 2]
    assert len(set.union(*cores)) == 6


@pytest.mark.long(
    "tests/unit/scheduler/test_numa_nodes.py::test_gpus_of_two_nodes_give_the_guest_two_nodes",
    "tests/unit/guests/test_view.py::test_each_gpu_sits_on_the_expander_bus_of_its_node",
    "tests/e2e/placement/test_numa_nodes.py::test_strict_vms_never_have_more_than_their_node",
)
def test_a_vm_with_gpus_at_two_nodes_has_two_nodes_itself(operator: Operator) -> None:
    wanted = ("--gpu", "2*A40-48Q", "--memory", "300GiB", "--vcpus", "8")
    assert operator.json("capacity", *wanted)["now"] == 1
    (explained,) = operator.json("explain-vm", "wide", *TENANT, *wanted)
    cells = explained["placement"]["numa"]["cells"]
    assert [cell[:3] for cell in cells] == [[0, 4, 153600], [1, 4, 153600]]
    operator.does("create-vm", "wide", *TENANT, *wanted, *NO_NETWORK)
    domain = defined(operator, "wide")
    guest = [(one.get("id"), one.get("cpus"), one.get("memory")) for one in domain.iterfind("cpu/numa/cell")]
    assert guest == [("0", "0-3", str(153600 * 1024)), ("1", "4-7", str(153600 * 1024))]
    bound = [(one.get("cellid"), one.get("mode"), one.get("nodeset")) for one in domain.iterfind("numatune/memnode")]
    assert bound == [("0", "strict", "0"), ("1", "strict", "1")]
    assert {cpu // 32 for cpu in pins(domain)} == {0, 1} and len(pins(domain)) == 8
    assert gpu_cells(domain) == ["0", "1"]
    assert operator.json("capacity", *wanted)["now"] == 0
    assert "node 0: 4 vCPUs, 150 GiB; node 1: 4 vCPUs, 150 GiB" in operator.does("show-vm", "wide", *TENANT).out


def gpu_cells(domain: ElementTree.Element) -> list[str | None]:
    """The guest's node of each GPU: that of the expander bus behind whose port it sits."""
    controllers = {one.get("index"): one for one in domain.iterfind("devices/controller[@type='pci']")}
    found = []
    for hostdev in domain.iterfind("devices/hostdev"):
        address = hostdev.find("address")
        assert address is not None
        port = controllers[str(int(address.get("bus", ""), 0))]
        above = port.find("address")
        assert above is not None
        expander = controllers[str(int(above.get("bus", ""), 0))]
        assert expander.get("model") == "pcie-expander-bus"
        found.append(expander.findtext("target/node"))
    return found
