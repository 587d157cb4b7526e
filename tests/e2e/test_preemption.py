# SPDX-License-Identifier: Apache-2.0
"""VMs that give way, on a simulated host with one A40."""

from collections.abc import Iterator

import pytest

from tests.e2e.operator import Operator

SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--limit", "sim-001", "--shutdown-timeout", "0")
HALF = ("--gpu", "A40-24Q", *SMALL)


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("create-tenant", "umbrella", "--quota", "framebuffer=48GiB")
    fleet_operator.does("list-gpus", "--refresh")
    yield fleet_operator
    for vm in fleet_operator.json("list-vms"):
        name, tenant = vm["vm"]["request"]["name"], vm["vm"]["request"]["tenant"]
        fleet_operator.does("delete-vm", name, "--tenant", tenant, "--yes", "--timeout", "0")


def _states(operator: Operator) -> dict[str, tuple[str, str | None, int]]:
    return {
        one["vm"]["request"]["name"]: (one["vm"]["state"], one["vm"]["problem"], len(one["leases"]))
        for one in operator.json("list-vms")
    }


def test_a_preemptible_vm_gives_way_to_a_more_important_one_and_no_other_does(operator: Operator) -> None:
    operator.does("create-vm", "batch", "--tenant", "acme", "--priority", "low", "--preemptible", "stop", *HALF)
    operator.does("create-vm", "firm", "--tenant", "acme", "--priority", "low", *HALF)
    equal = ("create-vm", "equal", "--tenant", "umbrella", "--priority", "100", *HALF)
    assert operator.is_refused(*equal)["reference"] == "no-capacity"
    whole = ("create-vm", "whole", "--tenant", "umbrella", "--priority", "high", "--gpu", "A40-48Q", *SMALL)
    assert operator.is_refused(*whole)["reference"] == "no-capacity"

    urgent = ("create-vm", "urgent", "--tenant", "umbrella", "--priority", "high", *HALF)
    (dry,) = operator.json(*urgent, "--dry-run")
    assert [one["vm"] for one in dry["victims"]] == ["acme.batch"]
    assert not dry["changed"]
    assert "# gives way: acme.batch, priority 100" in operator.does(*urgent, "--dry-run").out
    assert _states(operator) == {"batch": ("running", None, 1), "firm": ("running", None, 1)}

    (done,) = operator.json(*urgent)
    assert [one["vm"] for one in done["victims"]] == ["acme.batch"]
    assert _states(operator) == {
        "batch": ("stopped", "gave way to umbrella.urgent", 0),
        "firm": ("running", None, 1),
        "urgent": ("running", None, 1),
    }
    assert operator.json("repair") == []
    assert operator.is_refused("start-vm", "batch", "--tenant", "acme")["reference"] == "no-capacity"
    operator.does("delete-vm", "urgent", "--tenant", "umbrella", "--yes", "--timeout", "0")
    operator.does("start-vm", "batch", "--tenant", "acme")
    assert _states(operator)["batch"] == ("running", None, 1)


def test_borrowed_quota_is_given_back_to_whom_it_was_promised(operator: Operator) -> None:
    operator.does("set-quota", "acme", "--guaranteed", "framebuffer=24GiB")
    third = ("create-vm", "third", "--tenant", "umbrella", "--priority", "low", *HALF)
    operator.does("set-quota", "umbrella", "framebuffer=48GiB", "--guaranteed", "framebuffer=0")
    assert operator.is_refused(*third)["reference"] == "no-capacity"
    operator.does("set-quota", "umbrella", "--guaranteed", "framebuffer=24GiB")
    (done,) = operator.json(*third)
    assert [one["vm"] for one in done["victims"]] == ["acme.firm"]
    assert _states(operator)["batch"] == ("running", None, 1)
    fourth = ("create-vm", "fourth", "--tenant", "umbrella", "--priority", "low", *HALF)
    assert operator.is_refused(*fourth)["reference"] == "no-capacity"


def test_a_priority_that_is_none_is_refused(operator: Operator) -> None:
    for bad in ("urgent", "-1", "1001", "1.5", "٣"):
        refused = operator.is_refused("create-vm", "x", "--tenant", "acme", f"--priority={bad}", *HALF)
        assert refused["reference"] == "usage", bad
