# SPDX-License-Identifier: Apache-2.0
"""VMs that are preempted, on a simulated host with one A40."""

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator

SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--limit", "sim-001")
HALF = ("--gpu", "A40-24Q", *SMALL)
PREEMPT = ("--preempt", "--grace", "0", "--shutdown-timeout", "0")
LOW = ("--tenant", "acme", "--priority", "low")
UMBRELLA = "framebuffer=48GiB"
URGENT = ("create-vm", "urgent", "--tenant", "umbrella", "--priority", "high", *HALF)


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("create-tenant", "umbrella", "--quota", UMBRELLA)
    fleet_operator.does("list-gpus", "--refresh")
    return fleet_operator


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator) -> Iterator[None]:
    yield
    for vm in operator.json("list-vms"):
        name, tenant = vm["vm"]["request"]["name"], vm["vm"]["request"]["tenant"]
        operator.does("delete-vm", name, "--tenant", tenant, "--yes", "--timeout", "0")
    usual = ("--guaranteed", "framebuffer=none", "--reclaim", "never", "--preempt", "ask", "--grace", "30")
    for tenant, limits in (("acme", ()), ("umbrella", (UMBRELLA,))):
        operator.does("set-quota", tenant, *limits, *usual)


def _states(operator: Operator) -> dict[str, tuple[str, str | None, int]]:
    return {
        one["vm"]["request"]["name"]: (one["vm"]["state"], one["vm"]["problem"], len(one["leases"]))
        for one in operator.json("list-vms")
    }


def test_a_preemptible_vm_is_preempted_by_a_more_important_one_and_no_other_is(operator: Operator) -> None:
    told = operator.does("create-vm", "batch", *LOW, "--preemptible", "stop", *HALF).err
    assert "acme/batch: this VM may be preempted by a VM of a higher priority: it is stopped 30s after a notice" in told
    (firm,) = operator.json("create-vm", "firm", *LOW, *HALF)
    assert firm["preemption"] is None
    equal = ("create-vm", "equal", "--tenant", "umbrella", "--priority", "100", *HALF)
    assert operator.is_refused(*equal, *PREEMPT)["reference"] == "no-capacity"
    whole = ("create-vm", "whole", "--tenant", "umbrella", "--priority", "high", "--gpu", "A40-48Q", *SMALL)
    assert operator.is_refused(*whole, *PREEMPT)["reference"] == "no-capacity"

    (dry,) = operator.json(*URGENT, "--preempt", "--dry-run")
    assert [(one["vm"], one["action"], one["grace_s"]) for one in dry["victims"]] == [("acme/batch", "stop", 30.0)]
    assert not dry["changed"]
    assert (
        "preempts  acme/batch on sim-001: priority 100, preemptible"
        in operator.does(*URGENT, "--preempt", "--dry-run").out
    )
    (explained,) = operator.json("explain-vm", *URGENT[1:])
    assert [one["vm"] for one in explained["victims"]] == ["acme/batch"]
    assert operator.is_refused(*URGENT, "--dry-run")["reference"] == "preemption-needed"
    refused = operator.is_refused(*URGENT)
    assert (refused["reference"], refused["exit_code"]) == ("preemption-needed", 5)
    assert "umbrella/urgent fits only if 1 VM is preempted: acme/batch" in refused["message"]
    assert "--preempt" in refused["hint"]
    assert _states(operator) == {"batch": ("running", None, 1), "firm": ("running", None, 1)}

    (done,) = operator.json(*URGENT, *PREEMPT)
    assert [one["vm"] for one in done["victims"]] == ["acme/batch"]
    assert _states(operator) == {
        "batch": ("stopped", "preempted by umbrella/urgent", 0),
        "firm": ("running", None, 1),
        "urgent": ("running", None, 1),
    }
    assert operator.json("repair") == []
    assert operator.is_refused("start-vm", "batch", "--tenant", "acme", "--preempt")["reference"] == "no-capacity"
    operator.does("delete-vm", "urgent", "--tenant", "umbrella", "--yes", "--timeout", "0")
    operator.does("start-vm", "batch", "--tenant", "acme")
    assert _states(operator)["batch"] == ("running", None, 1)


def test_a_preempted_vm_is_suspended_and_goes_on_later(operator: Operator) -> None:
    told = operator.does("create-vm", "batch", *LOW, "--preemptible", "suspend", *HALF).err
    assert "it is suspended 30s after a notice" in told
    operator.does("create-vm", "firm", *LOW, *HALF)
    (done,) = operator.json(*URGENT, *PREEMPT)
    assert [(one["vm"], one["action"]) for one in done["victims"]] == [("acme/batch", "suspend")]
    assert _states(operator)["batch"] == ("stopped", "is suspended to disk", 0)
    (event,) = operator.json("list-events", "--kind", "vm-suspended", "--limit", "1")
    assert event["detail"] == "preempted by umbrella/urgent"
    assert operator.json("repair") == []
    assert operator.is_refused("resume-vm", "batch", "--tenant", "acme")["reference"] == "no-capacity"
    operator.does("delete-vm", "urgent", "--tenant", "umbrella", "--yes", "--timeout", "0")
    assert "goes on from its saved state" in operator.does("resume-vm", "batch", "--tenant", "acme").err
    assert _states(operator)["batch"] == ("running", None, 1)


def test_a_preempted_vm_whose_state_cannot_be_saved_is_stopped(operator: Operator) -> None:
    whole = ("--gpu", "passthrough", "--host", "sim-003", *SMALL[:-2])
    operator.does("create-vm", "batch", *LOW, "--preemptible", "suspend", *whole)
    operator.does("create-vm", "firm", *LOW, *whole)
    operator.does("create-vm", "urgent", "--tenant", "umbrella", "--priority", "high", *whole, *PREEMPT)
    state, problem, shares = _states(operator)["batch"]
    assert (state, shares) == ("stopped", 0)
    assert problem is not None and problem.startswith("preempted by umbrella/urgent, and not suspended: cannot be")
    (event,) = operator.json("list-events", "--kind", "vm-stopped", "--limit", "1")
    assert event["detail"] == problem


def test_a_started_vm_preempts_only_with_consent(operator: Operator) -> None:
    operator.does("create-vm", "vip", "--tenant", "umbrella", "--priority", "high", *HALF)
    operator.does("stop-vm", "vip", "--tenant", "umbrella", "--hold", "release", "--timeout", "0")
    for name in ("batch", "firm"):
        preemptible = ("--preemptible", "stop") if name == "batch" else ()
        operator.does("create-vm", name, *LOW, *preemptible, *HALF)
    start = ("start-vm", "vip", "--tenant", "umbrella")
    assert "acme/batch" in operator.is_refused(*start)["message"]
    assert operator.json(*start, *PREEMPT)["changed"]
    assert {name: state for name, (state, _, _) in _states(operator).items()} == {
        "batch": "stopped", "firm": "running", "vip": "running",
    }  # fmt: skip


def test_no_vm_stops_for_another_tenant_whose_owner_was_not_told(operator: Operator) -> None:
    """A tenant with a limit or a guarantee asks; the other's critical VM stands on borrowed quota, and stays."""
    operator.does("set-quota", "acme", "--guaranteed", "framebuffer=0")
    critical = ("--tenant", "acme", "--priority", "critical")
    for name in ("one", "two"):
        operator.does("create-vm", name, *critical, *HALF)
    low = ("create-vm", "third", "--tenant", "umbrella", "--priority", "low", *HALF)
    for guaranteed in ("none", "48GiB"):
        operator.does("set-quota", "umbrella", "--guaranteed", f"framebuffer={guaranteed}")
        assert operator.is_refused(*low, *PREEMPT)["reference"] == "no-capacity"
    assert {state for state, _, _ in _states(operator).values()} == {"running"}


def test_borrowed_quota_is_reclaimed_where_the_tenant_accepts_it(operator: Operator) -> None:
    operator.does("set-quota", "acme", "--guaranteed", "framebuffer=24GiB")
    operator.does("create-vm", "own", "--tenant", "acme", *HALF)
    operator.does("create-vm", "firm", "--tenant", "acme", "--priority", "high", *HALF)
    changed = operator.json("set-quota", "acme", "--reclaim", "stop", "--grace", "5")
    assert changed == {"changed": True, "tenant": "acme", "may_be_preempted": ["firm"]}
    operator.does("delete-vm", "firm", "--tenant", "acme", "--yes", "--timeout", "0")
    told = operator.json("create-vm", "firm", "--tenant", "acme", "--priority", "high", *HALF)[0]["preemption"]
    assert (told["on_borrowed_quota"], told["action"], told["grace_s"]) == (True, "stop", 5.0)
    assert "this VM runs on borrowed quota and may be preempted" in told["text"]
    shown = operator.does("show-vm", "firm", "--tenant", "acme").out
    assert "this VM runs on borrowed quota and may be preempted" in shown

    third = ("create-vm", "third", "--tenant", "umbrella", "--priority", "low", *HALF)
    assert operator.is_refused(*third, *PREEMPT)["reference"] == "no-capacity", "a limit is no guarantee"
    operator.does("set-quota", "umbrella", "--guaranteed", "framebuffer=24GiB")
    assert operator.is_refused(*third)["reference"] == "preemption-needed"
    operator.does("set-quota", "umbrella", "--preempt", "auto")
    (done,) = operator.json(*third, "--grace", "0", "--shutdown-timeout", "0")
    assert [(one["vm"], one["on_borrowed_quota"]) for one in done["victims"]] == [("acme/firm", True)]
    assert _states(operator)["own"] == ("running", None, 1)
    lowered = operator.json("set-quota", "acme", "--guaranteed", "framebuffer=0")
    assert lowered["may_be_preempted"] == ["own"], "the owner of a VM that loses its cover is to be told"
    fourth = ("create-vm", "fourth", "--tenant", "umbrella", "--priority", "low", *HALF)
    assert operator.is_refused(*fourth, *PREEMPT)["reference"] == "no-capacity"


@pytest.mark.long(
    "tests/e2e/vm/test_preemption_cut_short.py::test_a_gang_whose_preemption_was_killed_is_stopped_whole",
    "tests/unit/scheduler/test_gang_victims.py::test_a_gang_is_preempted_whole_also_on_hosts_that_nobody_asked_for",
)
def test_a_gang_over_several_hosts_is_preempted_whole(operator: Operator, tmp_path: Path) -> None:
    gang = tmp_path / "gang.yml"
    shape = "memory: 96MiB, vcpus: 1, network: null, priority: low, preemptible: stop"
    gang.write_text(
        f"vms:\n- {{name: near, gpus: [A40-24Q], host: sim-001, {shape}}}\n"
        f"- {{name: far, gpus: [passthrough], host: sim-003, {shape}}}\n"
    )
    operator.does("create-vm", "-f", str(gang), "--tenant", "acme", "--gang")
    operator.does("create-vm", "firm", *LOW, *HALF)
    refused = operator.is_refused(*URGENT)
    assert "only if 2 VMs are preempted: acme/far, acme/near" in refused["message"]
    operator.does(*URGENT, *PREEMPT)
    preempted = ("stopped", "preempted by umbrella/urgent", 0)
    found = _states(operator)
    assert (found["near"], found["far"], found["firm"][0]) == (preempted, preempted, "running")


def test_no_vm_is_preempted_for_a_request_that_its_own_quota_refuses(operator: Operator) -> None:
    operator.does("set-quota", "umbrella", "framebuffer=12GiB")
    for name in ("one", "two"):
        operator.does("create-vm", name, *LOW, "--preemptible", "stop", *HALF)
    assert operator.is_refused(*URGENT, *PREEMPT)["reference"] == "quota-exceeded"
    assert {state for state, _, _ in _states(operator).values()} == {"running"}


def test_the_grace_period_is_seen_and_an_interrupted_one_is_withdrawn(operator: Operator, fleet: Any) -> None:
    for name in ("one", "two"):
        operator.does("create-vm", name, *LOW, "--preemptible", "stop", *HALF)
    with operator.start(*URGENT, "--preempt", "--grace", "600", "--shutdown-timeout", "0") as process:
        victim = _noticed(operator)
        notice = victim["vm"]["notice"]
        assert (victim["vm"]["state"], notice["cause"]) == ("running", "umbrella/urgent")
        assert notice["at"] > time.time() + 60
        name = victim["vm"]["request"]["name"]
        assert "it is preempted by umbrella/urgent at" in operator.does("list-vms").out
        assert "notice    is preempted by umbrella/urgent at" in operator.does("show-vm", name, "--tenant", "acme").out
        with libvirt_of(operator.inventory, "sim-001") as libvirt:
            assert "urn:vgpuctl:preemption:1" in (libvirt.xml(f"acme.{name}") or "")
        assert operator.json("repair") == []
        process.send_signal(2)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert {one["vm"]["notice"] for one in operator.json("list-vms")} == {None}
    with libvirt_of(operator.inventory, "sim-001") as libvirt:
        assert "urn:vgpuctl:preemption:1" not in (libvirt.xml(f"acme.{name}") or "")

    with operator.start(*URGENT, "--preempt", "--grace", "600") as process:
        _noticed(operator)
        process.kill()
        process.communicate(timeout=60)
    assert [one["outcome"] for one in operator.json("repair")] == ["withdrawn"]
    assert {one["vm"]["notice"] for one in operator.json("list-vms")} == {None}

    with operator.start(*URGENT, "--preempt", "--grace", "600") as process:
        name = _noticed(operator)["vm"]["request"]["name"]
        operator.does("stop-vm", name, "--tenant", "acme", "--hold", "release", "--timeout", "0")
        _out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert _states(operator)[name] == ("stopped", None, 0), "its owner stopped it in the grace period"
    assert {one["vm"]["notice"] for one in operator.json("list-vms")} == {None}


def _noticed(operator: Operator) -> dict[str, Any]:
    give_up = time.monotonic() + 60
    while True:
        found: list[dict[str, Any]] = [one for one in operator.json("list-vms") if one["vm"]["notice"] is not None]
        if found:
            return found[0]
        assert time.monotonic() < give_up, "no VM got a notice"
        time.sleep(0.2)


@pytest.mark.long(
    "tests/e2e/vm/test_preemption.py::test_what_changes_after_the_question_counts",
    "tests/e2e/vm/test_preemption.py::test_a_preemptible_vm_is_preempted_by_a_more_important_one_and_no_other_is",
)
def test_a_user_at_a_terminal_is_asked(operator: Operator) -> None:
    for name in ("one", "two"):
        operator.does("create-vm", name, *LOW, "--preemptible", "stop", *HALF)
    wanted = (*URGENT, "--grace", "0", "--shutdown-timeout", "0")
    code, said = _at_a_terminal(operator, wanted, b"n\n")
    assert code == 5, said
    assert "Preempt 1 VM?" in said
    assert {state for state, _, _ in _states(operator).values()} == {"running"}
    code, said = _at_a_terminal(operator, wanted, b"y\n")
    assert code == 0, said
    assert _states(operator)["urgent"][0] == "running"


def test_what_changes_after_the_question_counts(operator: Operator) -> None:
    """The guarantee that allowed the reclaim is gone when the user says yes: nothing is preempted."""
    operator.does("set-quota", "acme", "--guaranteed", "framebuffer=0", "--reclaim", "stop")
    operator.does("set-quota", "umbrella", "--guaranteed", "framebuffer=24GiB")
    for name in ("one", "two"):
        operator.does("create-vm", name, "--tenant", "acme", *HALF)

    def lower() -> None:
        operator.does("set-quota", "umbrella", "--guaranteed", "framebuffer=none")

    wanted = (*URGENT, "--grace", "0", "--shutdown-timeout", "0")
    code, said = _at_a_terminal(operator, wanted, b"y\n", meanwhile=lower)
    assert code == 5, said
    assert "has just changed and is not preempted; placing again" in said
    assert {state for state, _, _ in _states(operator).values()} == {"running"}


def _at_a_terminal(
    operator: Operator, arguments: Sequence[str], answer: bytes, *, meanwhile: Callable[[], None] | None = None
) -> tuple[int, str]:
    """Run a command at a terminal and answer its question. meanwhile: called while the question waits."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "vgpuctl", *arguments]
    with subprocess.Popen(command, env=operator.environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said, is_answered = b"", False
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Linux answers EIO when the other end is closed
                break
            if not part:
                break
            said += part
            if b"[y/N]" in said and not is_answered:
                if meanwhile is not None:
                    meanwhile()
                os.write(ours, answer)
                is_answered = True
        code = process.wait(timeout=60)
    os.close(ours)
    return code, said.decode()


def test_a_grace_period_that_is_none_is_refused(operator: Operator) -> None:
    for bad in ("nan", "-1", "inf", "1e9", "86401"):
        assert operator.is_refused("set-quota", "acme", f"--grace={bad}")["reference"] == "usage", bad


def test_a_priority_that_is_none_is_refused(operator: Operator) -> None:
    for bad in ("urgent", "-1", "1001", "1.5", "٣"):
        refused = operator.is_refused("create-vm", "x", "--tenant", "acme", f"--priority={bad}", *HALF)
        assert refused["reference"] == "usage", bad
