# SPDX-License-Identifier: Apache-2.0
"""A host is rebooted between two commands: its VFs and vGPUs are gone, and no command takes the store's word for it."""

from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator

ACME = ("--tenant", "acme")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--disk", "4MiB")
VMS = {"on-profiles": "A40-8Q", "on-mdevs": "A40-24Q"}


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    return fleet_operator


def _share_of(operator: Operator, name: str) -> Any:
    return operator.json("show-vm", name, *ACME)


_ON_MDEVS = pytest.mark.long(
    "tests/e2e/layout/test_rebooted_host.py::test_a_lost_share_is_seen_comes_back_with_the_vm_and_goes_with_it",
    "tests/e2e/operate/test_lost_shares.py::test_a_power_cut_is_told_and_repaired_with_the_same_devices",
)


@pytest.mark.parametrize("name", ["on-profiles", pytest.param("on-mdevs", marks=_ON_MDEVS)])
def test_a_lost_share_is_seen_comes_back_with_the_vm_and_goes_with_it(
    name: str, operator: Operator, fleet: lab.LabFolder
) -> None:
    (created,) = operator.json("create-vm", name, *ACME, "--gpu", VMS[name], *SIZE)
    lab.simulated.reboot(created["vm"]["host"], folder=fleet)
    lost = _share_of(operator, name)
    assert lost["domain_state"] != "running"
    assert (lost["holders"], lost["host_problem"]) == ([None], None)
    operator.does("start-vm", name, *ACME)
    back = _share_of(operator, name)
    assert back["domain_state"] == "running"
    assert [one["vm_uuid"] for one in back["holders"][0]] == [back["vm"]["uuid"]]
    assert [lease["share"]["gpu"] for lease in back["leases"]] == [lease["share"]["gpu"] for lease in lost["leases"]]
    assert "nothing to repair" in operator.does("repair").err
    operator.does("delete-vm", name, *ACME, "--yes", "--timeout", "0")
    assert [gpu["vms"] for gpu in operator.json("list-gpus", "--refresh") if gpu.get("vms")] == []
    assert operator.json("list-vms") == []
