# SPDX-License-Identifier: Apache-2.0
"""create-vm --gang on simulated hosts: all of the VMs, or nothing of any, whatever happens on the way."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kills import kill_after
from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness

SMALL = ("--tenant", "gangs", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
PAIR = ("create-vm", "web", "--count", "2", "--gang", "--gpu", "A40-24Q", *SMALL)


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("create-tenant", "gangs")
    fleet_operator.does("list-gpus", "--refresh")
    yield fleet_operator
    for vm in fleet_operator.json("list-vms", "--tenant", "gangs"):
        name = vm["vm"]["request"]["name"]
        fleet_operator.does("delete-vm", name, "--tenant", "gangs", "--yes", "--timeout", "0")


def test_a_gang_runs_as_a_whole_and_the_same_again_changes_nothing(operator: Operator) -> None:
    planned = operator.json(*PAIR, "--dry-run")
    assert [(one["vm"]["request"]["name"], one["changed"], bool(one["steps"])) for one in planned] == [
        ("web-1", False, True),
        ("web-2", False, True),
    ]
    assert operator.json("list-vms", "--tenant", "gangs") == []
    created = operator.json(*PAIR)
    assert [(one["changed"], one["vm"]["state"]) for one in created] == [(True, "running")] * 2
    assert len({lease["share"]["function"] for one in created for lease in one["leases"]}) == 2
    assert [one["changed"] for one in operator.json(*PAIR)] == [False, False]
    part = operator.is_refused(*PAIR[:3], "3", *PAIR[4:])
    assert (part["reference"], "web-1, web-2 are there already" in part["message"]) == ("state", True)
    for name in ("web-1", "web-2"):
        operator.does("delete-vm", name, "--tenant", "gangs", "--yes", "--timeout", "0")


def test_a_gang_that_does_not_fit_or_fails_half_way_leaves_nothing(
    operator: Operator, fleet_witness: FleetWitness, tmp_path: Path
) -> None:
    before = fleet_witness.state()
    full = operator.is_refused(*PAIR[:3], "99", *PAIR[4:])
    assert (full["reference"], "do not fit together" in full["message"]) == ("no-capacity", True)
    file = tmp_path / "gang.yml"
    vm = "gpus: [A40-24Q], memory: 96MiB, vcpus: 1, network: null, tenant: gangs"
    file.write_text(f"vms:\n- {{name: a, {vm}}}\n- {{name: b, {vm}, disk: {{pool: missing}}}}\n")
    operator.is_refused("create-vm", "-f", str(file), "--gang")
    assert operator.json("list-vms", "--tenant", "gangs") == []
    assert fleet_witness.state() == before


def test_what_a_killed_gang_left_is_taken_back_also_the_vm_that_runs(
    operator: Operator, fleet_witness: FleetWitness
) -> None:
    before = fleet_witness.state()
    kill_after(operator, "start", *PAIR)
    assert fleet_witness.state() != before
    repaired = operator.json("repair")
    assert {one["outcome"] for one in repaired} == {"finished"}, repaired
    assert operator.json("list-vms", "--tenant", "gangs") == []
    assert fleet_witness.state() == before


@pytest.mark.long(
    "tests/unit/scheduler/test_gang_victims.py::test_the_least_important_of_each_host_give_way",
    "tests/e2e/vm/test_preemption.py::test_a_preemptible_vm_is_preempted_by_a_more_important_one_and_no_other_is",
)
def test_less_important_vms_give_way_to_a_whole_gang(operator: Operator) -> None:
    low = ("--priority", "low", "--preemptible", "stop", "--gpu", "A40-48Q", *SMALL)
    operator.does("create-vm", "batch", *low)
    (batch,) = operator.json("list-vms", "--tenant", "gangs")
    urgent = (*PAIR, "--priority", "high", "--host", batch["vm"]["host"])
    planned = operator.json(*urgent, "--preempt", "--dry-run")
    assert [[one["vm"] for one in each["victims"]] for each in planned] == [["gangs/batch"], []]
    assert operator.is_refused(*urgent, "--count", "3")["reference"] == "no-capacity"
    refused = operator.is_refused(*urgent)
    assert (refused["reference"], refused["exit_code"]) == ("preemption-needed", 5)
    assert "fit together only if 1 VM is preempted: gangs/batch" in refused["message"]
    created = operator.json(*urgent, "--preempt", "--grace", "0", "--shutdown-timeout", "0")
    assert [[one["vm"] for one in each["victims"]] for each in created] == [["gangs/batch"], []]
    states = {one["vm"]["request"]["name"]: one["vm"]["state"] for one in operator.json("list-vms")}
    assert states == {"batch": "stopped", "web-1": "running", "web-2": "running"}
    operator.does("delete-vm", "batch", "--tenant", "gangs", "--yes", "--timeout", "0")
    for name in ("web-1", "web-2"):
        operator.does("delete-vm", name, "--tenant", "gangs", "--yes", "--timeout", "0")
