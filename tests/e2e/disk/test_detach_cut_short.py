# SPDX-License-Identifier: Apache-2.0
"""A disk or interface that a killed command was detaching or growing: what is free is in no definition."""

from collections.abc import Iterator

import libvirt
import pytest

from tests.e2e.kills import kill_after, kill_points, side_effects
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME
from vgpuctl.guests.facts.disk_facts import domain_disks
from vgpuctl.guests.facts.nic_facts import macs_of

pytestmark = pytest.mark.long(
    "tests/e2e/disk/test_attach_disk.py::test_a_killed_attach_is_finished_by_the_next_one",
    "tests/e2e/vm/test_attach_nic.py::test_an_interface_comes_at_the_next_start_and_goes_with_the_guest",
    "tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired",
)

DETACH_DISK = ("detach-disk", "web", "data", *ACME)
DETACH_NIC = ("detach-nic", "web", "front", *ACME, "--last")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--disk", "64MiB")
CREATE = ("create-vm", "web", *ACME, *SIZE, "--data-disk", "data,size=8MiB", "--network", "front")
STOP = ("stop-vm", "web", *ACME, "--timeout", "0")
DELETE = ("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("create-network", "front", *ACME, "--cidr", "10.7.0.0/24", "--host", "sim-001")
    yield fleet_operator
    fleet_operator.delete_all_vms()


def defined(operator: Operator) -> tuple[list[str], list[str]]:
    """The serial numbers of the data disks, and the MAC addresses, that the definition of the domain names."""
    with libvirt_of(operator.inventory, "sim-001") as there:
        xml = there.connection.lookupByName("acme.web").XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    return [one.serial for one in domain_disks(xml) if one.serial], sorted(macs_of(xml))


@pytest.mark.parametrize("change", [DETACH_DISK, DETACH_NIC], ids=["disk", "interface"])
def test_what_is_free_is_in_no_definition(operator: Operator, change: tuple[str, ...]) -> None:
    operator.does(*CREATE)
    operator.does(*STOP)
    effects = side_effects(operator, *change)
    operator.does(*DELETE)
    operator.run("delete-disk", "data", *ACME, "--yes")
    for point in kill_points(effects, most=3):
        operator.does(*CREATE)
        operator.does(*STOP)
        kill_after(operator, point, *change)
        operator.does("repair")
        assert operator.json("repair") == []
        disks, macs = defined(operator)
        wanted = operator.json("show-vm", "web", *ACME)["vm"]["request"]
        assert (len(disks), len(macs)) == (len(wanted["data_disks"]), int(wanted["network"] is not None)), point
        if change is DETACH_DISK and not wanted["data_disks"]:
            operator.does("delete-disk", "data", *ACME, "--yes")
        operator.does("start-vm", "web", *ACME)
        operator.does(*DELETE)
        operator.run("delete-disk", "data", *ACME, "--yes")


@pytest.mark.parametrize("point", [1, 2])
def test_a_vm_whose_disk_did_not_grow_because_of_a_kill_starts(operator: Operator, point: int) -> None:
    """The volumes of libvirt's test driver never grow: both side effects come before that."""
    operator.does(*CREATE)
    operator.does(*STOP)
    kill_after(operator, point, "resize-disk", "web", "72MiB", *ACME)
    operator.does("repair")
    operator.does("start-vm", "web", *ACME)
    operator.does(*STOP)
    assert "cannot grow volume" in operator.run("resize-disk", "web", "72MiB", *ACME).err
    operator.does(*DELETE)
    assert operator.json("repair") == []
