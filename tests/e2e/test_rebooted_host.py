# SPDX-License-Identifier: Apache-2.0
"""A host is rebooted between two commands: its VFs and vGPUs are gone, and no command takes the store's word for it."""

from typing import Any

import pytest

from tests.e2e.operator import Operator
from vgpuctl import lab

SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--disk", "4MiB")
VMS = {"on-profiles": "A40-8Q", "on-mdevs": "A40-24Q"}
VMS_OF_ACME = {name: ("create-vm", name, "--tenant", "acme", "--gpu", gpu, *SIZE) for name, gpu in VMS.items()}


@pytest.fixture(scope="module")
def rebooted(fleet_operator: Operator, fleet: lab.LabFolder) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    hosts = {fleet_operator.json(*create)[0]["vm"]["host"] for create in VMS_OF_ACME.values()}
    for host in hosts:
        lab.simulated.reboot(host, folder=fleet)
    return fleet_operator


def _slice_of(operator: Operator, name: str) -> Any:
    return operator.json("show-vm", name, "--tenant", "acme")


@pytest.mark.parametrize("name", VMS)
def test_a_lost_slice_is_seen_and_comes_back_with_the_vm(rebooted: Operator, name: str) -> None:
    lost = _slice_of(rebooted, name)
    assert lost["domain_state"] != "running"
    assert (lost["holders"], lost["host_problem"]) == ([None], None)
    rebooted.does("start-vm", name, "--tenant", "acme")
    back = _slice_of(rebooted, name)
    assert back["domain_state"] == "running"
    assert [one["vm_uuid"] for one in back["holders"][0]] == [back["vm"]["uuid"]]
    assert [lease["slice"]["gpu"] for lease in back["leases"]] == [lease["slice"]["gpu"] for lease in lost["leases"]]


def test_nothing_is_left_to_repair_and_deleting_gives_all_back(rebooted: Operator) -> None:
    assert "nothing to repair" in rebooted.does("repair").err
    for name in VMS:
        rebooted.does("delete-vm", name, "--tenant", "acme", "--yes", "--timeout", "0")
    assert [gpu["vms"] for gpu in rebooted.json("list-gpus", "--refresh") if gpu.get("vms")] == []
    assert rebooted.json("list-vms") == []
