# SPDX-License-Identifier: Apache-2.0
"""Commands on several VMs of two hosts: names, globs and --all; a VM that fails stops no other."""

import pytest

from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import SIZE

PLACES = {"acme/web-1": "sim-001", "acme/web-2": "sim-002", "globex/web-1": "sim-001"}


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    for tenant in ("acme", "globex"):
        fleet_operator.does("create-tenant", tenant)
    fleet_operator.does("list-gpus", "--refresh")
    for name, host in PLACES.items():
        fleet_operator.does("create-vm", name, *SIZE, "--host", host)
    return fleet_operator


def _states(operator: Operator) -> dict[str, str]:
    return {
        f"{one['vm']['request']['tenant']}/{one['vm']['request']['name']}": one["declared"]
        for one in operator.json("list-vms")
    }


def test_several_vms_are_changed_at_once_and_summed_up(operator: Operator) -> None:
    done = operator.does("stop-vm", "acme/web-*", "globex/web-1", "--yes", "--timeout", "0")
    assert "3 VMs: 3 stopped, " in done.err
    assert set(_states(operator).values()) == {"stopped"}
    answers = operator.json("start-vm", "*/web-1", "--yes")
    assert [(one["changed"], one["vm"]["request"]["tenant"]) for one in answers] == [(True, "acme"), (True, "globex")]
    again = operator.does("start-vm", "--all", "-A", "--yes", "--json")
    assert "3 VMs: 2 unchanged, 1 started, " in again.err or "3 VMs: 1 started, 2 unchanged, " in again.err
    assert [one["vm"]["state"] for one in operator.json("show-vm", "--all", "-t", "acme")] == ["running"] * 2
    assert operator.json("show-vm", "acme/web-1")["vm"]["request"]["name"] == "web-1"


def test_vms_that_were_not_named_one_by_one_need_a_yes(operator: Operator) -> None:
    refused = operator.is_refused("stop-vm", "acme/*")
    assert (refused["exit_code"], refused["reference"]) == (2, "usage")
    assert set(_states(operator).values()) == {"running"}
    assert operator.is_refused("stop-vm")["exit_code"] == 2
    assert operator.is_refused("stop-vm", "acme/web-1", "--all")["exit_code"] == 2
    assert operator.is_refused("stop-vm", "acme/web-1", "acme/web-9")["reference"] == "not-found"
    assert operator.is_refused("stop-vm", "acme/x*", "--yes")["reference"] == "not-found"


def test_a_vm_that_fails_stops_no_other(operator: Operator) -> None:
    with libvirt_of(operator.inventory, "sim-001") as there:
        uuid = operator.json("show-vm", "acme/web-1")["vm"]["uuid"]
        there.connection.lookupByUUIDString(uuid).destroy()
    refused = operator.is_refused("restart-vm", *PLACES, "--reset")
    assert (refused["exit_code"], refused["reference"]) == (10, "partial-failure")
    assert refused["message"] == "1 of 3 VMs failed"
    assert "cannot reset" in refused["context"][0]
    assert len(operator.json("list-events", "--kind", "vm-reset")) == 2
    left = operator.json("delete-vm", "*/web-*", "--yes", "--timeout", "0")
    assert len(left["deleted"]) == 3 and _states(operator) == {}
