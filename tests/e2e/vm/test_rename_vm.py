# SPDX-License-Identifier: Apache-2.0
"""rename-vm on simulated hosts: everything of the VM has its new name, and a killed run is finished by repair."""

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after, kill_points, side_effects
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from vgpuctl_lab.simulated.layout import simulated_folder

ACME = ("--tenant", "acme")
SIZE = (*ACME, "--memory", "96MiB", "--vcpus", "1", "--host", "sim-001")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("create-network", "front", *ACME, "--cidr", "10.0.0.0/24", "--host", "sim-001")
    fleet_operator.does("create-vm", "web", *SIZE, "--network", "front", "--gpu", "A40-8Q", "--disk", "64MiB")
    fleet_operator.does("create-vm", "other", *SIZE, "--network", "none")
    return fleet_operator


def _domains(fleet: lab.LabFolder) -> dict[str, str]:
    with libvirt_of(simulated_folder(fleet).inventory, "sim-001") as there:
        return {one.UUIDString(): one.name() for one in there.connection.listAllDomains(0)}


def test_everything_of_the_vm_has_its_new_name(operator: Operator, fleet: lab.LabFolder) -> None:
    refused = operator.is_refused("rename-vm", "web", "shop", *ACME)
    assert "it runs, and libvirt renames only a domain that is off" in refused["message"]
    before = operator.json("stop-vm", "web", *ACME, "--timeout", "0")["vm"]
    answer = operator.json("rename-vm", "web", "shop", *ACME)
    assert (answer["changed"], answer["vm"]["request"]["name"], answer["vm"]["uuid"]) == (True, "shop", before["uuid"])
    assert not operator.json("rename-vm", "shop", "shop", *ACME)["changed"]
    assert _domains(fleet)[before["uuid"]] == "acme.shop"
    assert operator.is_refused("show-vm", "web", *ACME)["reference"] == "not-found"
    shown = operator.json("show-vm", "shop", *ACME)
    assert [one["vm_name"] for one in shown["leases"]] == ["shop"]
    assert 'name="shop"' in shown["xml"].replace("'", '"')
    assert operator.json("show-network", "front", *ACME)["ports"][0]["vm"] == "shop"
    assert operator.json("repair") == []
    assert operator.json("gc", "--dry-run") == []
    operator.does("start-vm", "shop", *ACME)
    assert operator.json("repair") == []
    kinds = [one["kind"] for one in operator.json("show-vm", "shop", *ACME, "--history")]
    assert "vm-created" in kinds and "vm-renamed" in kinds, "its history goes on from its former name"
    operator.does("stop-vm", "shop", *ACME, "--timeout", "0")
    operator.does("create-vm", "web", *SIZE, "--network", "none")
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


def test_a_taken_name_is_refused(operator: Operator, fleet: lab.LabFolder) -> None:
    before = _domains(fleet)
    assert (
        "the name other is taken: a VM of tenant acme with that name is there"
        in operator.is_refused("rename-vm", "shop", "other", *ACME)["message"]
    )
    assert operator.is_refused("rename-vm", "shop", "-bad-", *ACME)["reference"] == "usage"
    with_other_tenant = ("--tenant", "t" * 60)
    operator.does("create-tenant", "t" * 60)
    operator.does("create-vm", "short", *with_other_tenant, "--memory", "96MiB", "--vcpus", "1", "--network", "none")
    operator.does("stop-vm", "short", *with_other_tenant, "--timeout", "0")
    too_long = operator.is_refused("rename-vm", "short", "w" * 41, *with_other_tenant)
    assert "more than 100 characters together" in too_long["message"]
    operator.does("offboard-tenant", "t" * 60, "--yes", "--timeout", "0")
    foreign = "<domain type='test'><name>acme.mine</name><memory>65536</memory><os><type>hvm</type></os></domain>"
    with libvirt_of(simulated_folder(fleet).inventory, "sim-001") as there:
        there.connection.defineXML(foreign)
    refused = operator.is_refused("rename-vm", "shop", "mine", *ACME)
    assert "sim-001 has a domain acme.mine that is not this VM's" in refused["message"]
    with libvirt_of(simulated_folder(fleet).inventory, "sim-001") as there:
        there.connection.lookupByName("acme.mine").undefine()
    assert _domains(fleet) == before


@pytest.mark.long(
    "tests/e2e/vm/test_rename_vm.py::test_everything_of_the_vm_has_its_new_name",
    "tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired",
)
def test_a_rename_that_is_killed_is_finished_by_repair(operator: Operator, fleet: lab.LabFolder) -> None:
    name = "a0"
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    for point in kill_points(side_effects(operator, "rename-vm", "web", name, *ACME)):
        new = f"a{point}"
        kill_after(operator, point, "rename-vm", name, new, *ACME)
        operator.does("repair")
        names = [one["vm"]["request"]["name"] for one in operator.json("list-vms")]
        name = new if new in names else name
        uuid = operator.json("show-vm", name, *ACME)["vm"]["uuid"]
        assert _domains(fleet)[uuid] == f"acme.{name}"
        assert operator.json("repair") == []
