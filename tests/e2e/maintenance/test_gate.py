# SPDX-License-Identifier: Apache-2.0
"""Every way to a GPU asks the same gate: whether its host is cordoned and whether it is in quarantine."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.e2e.operator import Operator

HOST, GPU = "sim-001", "0000:41:00.0"
ACME = ("--tenant", "acme")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--limit", HOST)
SMALL = ("--gpu", "A40-8Q", *SIZE)
ONCE = ("controller", "--once", "--shutdown-timeout", "0", "--limit", HOST)


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat(timespec="seconds")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    for tenant in ("acme", "umbrella"):
        fleet_operator.does("create-tenant", tenant)
    fleet_operator.does("list-gpus", "--refresh")
    for name, hold in (("kept", "keep"), ("freed", "release")):
        fleet_operator.does("create-vm", name, *ACME, *SMALL)
        fleet_operator.does("stop-vm", name, *ACME, "--hold", hold, "--timeout", "0")
    promised = ("--tenant", "umbrella", "--gpu", "A40-8Q", "--limit", HOST, "--from", _at(-60), "--until", _at(36000))
    fleet_operator.does("reserve", "promised", *promised)
    return fleet_operator


@pytest.fixture(autouse=True)
def nothing_runs(operator: Operator) -> Iterator[None]:
    yield
    operator.does("uncordon-host", HOST)
    operator.does("uncordon-host", HOST, "--gpu", GPU)
    operator.does("unquarantine-gpu", HOST, GPU, "--reason", "the test is over")
    for waiting in operator.json("list-queue")["queue"]:
        operator.does("leave-queue", "--yes", waiting["entry"]["request"]["name"], *ACME)
    for vm in operator.json("list-vms"):
        name, tenant = vm["vm"]["request"]["name"], vm["vm"]["request"]["tenant"]
        hold = {"kept": "keep", "freed": "release"}.get(name)
        if hold is None:
            operator.does("delete-vm", name, "--tenant", tenant, "--yes", "--timeout", "0")
        else:
            operator.does("stop-vm", name, *ACME, "--hold", hold, "--timeout", "0")


def codes(operator: Operator) -> set[str]:
    (explained,) = operator.json("explain-vm", "new", *ACME, *SMALL)
    return {one["code"] for one in explained["answers"]} if not explained["fits"] else set()


def refuses_new_vms(operator: Operator, reason: str) -> None:
    """Every command that would give a GPU to a new VM names the reason."""
    for command in (
        ("create-vm", "new", *ACME, *SMALL),
        ("create-vm", "new", *ACME, "--count", "2", "--gang", *SMALL),
        ("create-vm", "new", *ACME, "--preempt", "--priority", "high", *SMALL),
        ("create-vm", "new", "--tenant", "umbrella", "--reservation", "promised", *SIZE),
        ("reserve", "more", *ACME, "--gpu", "A40-8Q", "--limit", HOST, "--from", _at(60), "--until", _at(3600)),
    ):
        refused = operator.is_refused(*command)
        assert refused["reference"] == "no-capacity", command
        assert reason in str(refused), command
    assert operator.json("capacity", "--gpu", "A40-8Q", *SIZE[:4], "--limit", HOST)["now"] == 0
    operator.does("create-vm", "waiting", *ACME, "--queue", "--for", "1h", *SMALL)
    assert {one["outcome"].split(":")[0] for one in operator.json(*ONCE)} == {"waits"}
    operator.does("leave-queue", "--yes", "waiting", *ACME)
    (listed,) = [one for one in operator.json("list-gpus") if one["host"] == HOST]
    assert reason in listed["closed"]["reason"]
    assert reason in operator.does("list-gpus", "--limit", HOST).out
    assert GPU not in operator.does("list-gpus", "--free", "--limit", HOST).out


def test_a_gpu_in_quarantine_is_given_to_nobody_until_it_is_released(operator: Operator) -> None:
    assert operator.json("quarantine-gpu", HOST, GPU, "--reason", "smells of smoke", "--dry-run")["changed"]
    assert codes(operator) == set()
    quarantine = ("quarantine-gpu", HOST, GPU, "--reason", "smells of smoke")
    assert operator.json(*quarantine)["changed"]
    assert not operator.json(*quarantine)["changed"]
    assert codes(operator) == {"gpu-quarantine"}
    refuses_new_vms(operator, "smells of smoke")
    kept = operator.is_refused("start-vm", "kept", *ACME)
    assert (kept["reference"], "smells of smoke" in kept["message"]) == ("state", True)
    assert "smells of smoke" in str(operator.is_refused("start-vm", "freed", *ACME))
    assert f"vgpuctl list-gpus --limit {HOST}" in kept["hint"]
    shown = operator.json("show-vm", "kept", *ACME)
    assert shown["closed"] == ["in quarantine: smells of smoke"]
    assert "closed: in quarantine: smells of smoke" in operator.does("show-vm", "kept", *ACME).out

    assert operator.json("unquarantine-gpu", HOST, GPU, "--reason", "it was the rack", "--dry-run")["changed"]
    (lifted,) = operator.json("unquarantine-gpu", HOST, GPU, "--reason", "it was the rack")["lifted"]
    assert (lifted["kind"], lifted["reason"]) == ("quarantine", "smells of smoke")
    assert not operator.json("unquarantine-gpu", HOST, GPU, "--reason", "again")["changed"]
    for name in ("kept", "freed"):
        operator.does("start-vm", name, *ACME)
    operator.does("create-vm", "new", *ACME, *SMALL)


def test_a_cordoned_host_takes_no_new_vm_and_starts_its_own(operator: Operator) -> None:
    cordon = ("cordon-host", HOST, "--reason", "new disks on Friday")
    assert operator.json(*cordon, "--dry-run")["changed"]
    assert operator.json(*cordon)["changed"]
    assert not operator.json(*cordon)["changed"]
    assert codes(operator) == {"host-cordoned"}
    refuses_new_vms(operator, "new disks on Friday")
    assert "new disks on Friday" in operator.does("list-hosts", "--limit", HOST).out
    for name in ("kept", "freed"):
        operator.does("start-vm", name, *ACME)
    assert operator.json("uncordon-host", HOST)["changed"]
    assert not operator.json("uncordon-host", HOST)["changed"]
    operator.does("create-vm", "new", *ACME, *SMALL)


def test_a_cordoned_gpu_takes_no_new_vm(operator: Operator) -> None:
    operator.does("cordon-host", HOST, "--gpu", GPU.removeprefix("0000:"), "--reason", "a new firmware")
    assert codes(operator) == {"gpu-cordoned"}
    refuses_new_vms(operator, "a new firmware")
    operator.does("uncordon-host", HOST, "--gpu", GPU)
    assert codes(operator) == set()


def test_the_events_say_who_closed_what_and_why(operator: Operator) -> None:
    operator.does("quarantine-gpu", f"{HOST}/{GPU.removeprefix('0000:')}", "--reason", "one")
    operator.does("unquarantine-gpu", HOST, GPU, "--reason", "two")
    told = [one for one in operator.json("list-events", "--host", HOST) if one["kind"].startswith("gpu-")][-2:]
    assert [(one["kind"], one["detail"]) for one in told] == [("gpu-quarantined", "one"), ("gpu-released", "two")]
    assert told[1]["before"]["quarantine"] == "one"


@pytest.mark.parametrize(
    "command",
    [
        ("quarantine-gpu", HOST, GPU),
        ("unquarantine-gpu", HOST, GPU),
        ("cordon-host", HOST),
        ("drain-host", HOST, "--plan"),
        ("evacuate-host", HOST, "--plan"),
        ("forget-host", HOST, "--dry-run"),
    ],
    ids=lambda one: one[0],
)
def test_a_blank_reason_is_refused(command: tuple[str, ...], operator: Operator) -> None:
    for blank in ("", "  "):
        done = operator.run(*command, "--reason", blank)
        assert (done.code, "a reason has words" in done.err) == (2, True), done
    assert operator.json("list-gpus", "--limit", HOST)[0]["closed"] is None


def test_names_that_are_not_there_are_refused(operator: Operator) -> None:
    assert "sim-001" in operator.is_refused("cordon-host", "sim-01", "--reason", "x")["hint"]
    assert operator.is_refused("quarantine-gpu", HOST, "0000:99:00.0", "--reason", "x")["reference"] == "not-found"
    assert operator.is_refused("unquarantine-gpu", HOST, "0000:99:00.0", "--reason", "x")["reference"] == "not-found"
