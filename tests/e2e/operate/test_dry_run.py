# SPDX-License-Identifier: Apache-2.0
"""A dry run of a command on VMs: the checks of the real one, the changes that it would make, and no change."""

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE

FLEET = (2, "a40")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    """An operator with two running VMs and `off`, which is stopped and has released its share."""
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("list-gpus", "--refresh")
    for name, host in (("web", "sim-001"), ("db", "sim-002"), ("off", "sim-001")):
        fleet_operator.does("create-vm", name, *ACME, *SIZE, "--gpu", "A40-8Q", "--host", host)
    fleet_operator.does("stop-vm", "off", *ACME, "--timeout", "0", "--hold", "release")
    return fleet_operator


def test_a_dry_run_names_the_steps_up_to_the_one_on_which_the_rest_depends(operator: Operator) -> None:
    done = operator.run("stop-vm", "web", *ACME, "--dry-run")
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [
        "dry run: acme/web: shutting down",
        "dry run: sim-001: would shut down domain acme.web",
    ]
    said = operator.does("stop-vm", "web", *ACME, "--hold", "release", "--dry-run").err
    assert "dry run: acme/web: shutting down, then releasing A40-8Q on " in said
    said = operator.does("restart-vm", "web", *ACME, "--dry-run").err
    assert "dry run: acme/web: shutting down, then starting it again with its shares" in said
    found = operator.json("stop-vm", "web", *ACME, "--dry-run")
    step = {"host": "sim-001", "text": "shut down domain acme.web"}
    assert (found["changed"], found["dry_run"], found["steps"]) == (True, True, [step])
    assert operator.json("show-vm", "web", *ACME)["vm"]["state"] == "running"


def test_a_dry_run_of_a_start_names_what_the_agent_would_build_and_ends_with_the_domain(operator: Operator) -> None:
    found = operator.json("start-vm", "off", *ACME, "--dry-run")
    texts = [one["text"] for one in found["steps"]]
    assert texts[-1] == "start domain acme.off"
    assert texts[0].startswith("vf-profile.set "), texts
    assert not operator.json("show-vm", "off", *ACME)["leases"]


def test_a_dry_run_of_several_sums_them_up_and_finds_the_refused_one(operator: Operator) -> None:
    done = operator.run("restart-vm", "off", "db", *ACME, "--reset", "--dry-run")
    assert done.code == 10
    assert "dry run: sim-002: would reset domain acme.db" in done.err
    assert "dry run: 2 VMs: 1 would change, 1 failed" in done.err
    assert "only a running VM can be reset" in done.err


def test_a_dry_run_refuses_what_the_real_run_refuses(operator: Operator) -> None:
    for arguments in (
        ("rename-vm", "off", "db"),
        ("resize-disk", "db", "32MiB"),
        ("attach-nic", "db", "nowhere"),
        ("detach-disk", "db", "nothing"),
        ("revert-snapshot", "db", "never"),
    ):
        dry = operator.run(*arguments, *ACME, "--dry-run")
        real = operator.run(*arguments, *ACME, *(("--yes",) if "revert-snapshot" in arguments else ()))
        assert (dry.code, dry.err) == (real.code, real.err), arguments
        assert real.code in (6, 7)


def test_a_dry_run_of_what_is_left_undone_says_would(operator: Operator) -> None:
    queued = operator.does(
        "create-vm", "new", *ACME, *SIZE, "--gpu", "A40-8Q", "--memory", "4000GiB", "--queue", "--dry-run"
    )
    assert "acme/new: would wait in the queue: " in queued.err
    assert operator.json("list-queue")["queue"] == []
    said = operator.does("delete-vm", "off", *ACME, "--dry-run").err
    assert "dry run: acme/off: would be deleted" in said


def test_a_dry_run_of_no_change_says_so(operator: Operator) -> None:
    done = operator.run("start-vm", "db", *ACME, "--dry-run")
    assert (done.code, done.err) == (0, "dry run: acme/db: no change, it is running on sim-002\n")
