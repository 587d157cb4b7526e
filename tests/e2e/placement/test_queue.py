# SPDX-License-Identifier: Apache-2.0
"""The queue, on a simulated host with one A40."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kills import kill_after
from tests.e2e.operator import Operator
from tests.e2e.small_vms import operator
from vgpuctl.store.store import open_store

__all__ = ["operator"]

SMALL = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none", "--host", "sim-001")
WHOLE = ("--gpu", "A40-48Q", *SMALL)
PREEMPT = ("--preempt", "--grace", "0", "--shutdown-timeout", "0")
ONCE = ("controller", "--once", "--shutdown-timeout", "0", "--limit", "sim-001")


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator) -> Iterator[None]:
    yield
    _clear(operator)


def _clear(operator: Operator) -> None:
    for waiting in operator.json("list-queue")["queue"]:
        operator.does("leave-queue", "--yes", waiting["entry"]["request"]["name"], "--tenant", "acme")
    operator.delete_all_vms()


def queued(operator: Operator) -> list[dict[str, Any]]:
    queue: list[dict[str, Any]] = operator.json("list-queue")["queue"]
    return queue


def states(operator: Operator) -> dict[str, str]:
    return {one["name"]: one["declared"] for one in operator.json("list-vms") if one["vm"] is not None}


def test_vms_wait_their_turn_and_start_when_there_is_room(operator: Operator) -> None:
    assert not operator.json("create-vm", "first", "--queue", "--for", "1h", *WHOLE)[0]["queued"]
    second = ("create-vm", "second", "--queue", "--for", "1h", *WHOLE)
    assert operator.json(*second)[0]["queued"]
    assert operator.json(*second)[0]["queued"]
    assert operator.is_refused(*second, "--priority", "high")["reference"] == "vm-differs"
    operator.does("create-vm", "third", "--queue", "--priority", "high", *WHOLE)
    now = time.time()
    assert [one["entry"]["request"]["name"] for one in queued(operator)] == ["second", "third"]
    assert [one["expected_at"] for one in queued(operator)] == [
        pytest.approx(now + 3600, abs=300), pytest.approx(now + 7200, abs=300),
    ]  # fmt: skip
    assert operator.json("set-queue", "priority")["changed"]
    assert [one["entry"]["request"]["name"] for one in queued(operator)] == ["third", "second"]
    assert "third" in operator.does("list-queue").out
    assert {one["outcome"].split(":")[0] for one in operator.json(*ONCE)} == {"waits"}

    operator.does("delete-vm", "first", "--tenant", "acme", "--yes", "--timeout", "0")
    assert operator.json(*ONCE)[0] == {"name": "acme/third", "outcome": "started"}
    assert states(operator) == {"third": "running"}
    (waiting,) = queued(operator)
    assert (waiting["entry"]["request"]["name"], waiting["expected_at"]) == ("second", None)
    operator.does("leave-queue", "--yes", "second", "--tenant", "acme")
    assert operator.is_refused("leave-queue", "--yes", "second", "--tenant", "acme")["reference"] == "not-found"
    operator.does("set-queue", "fifo")


def test_a_gang_waits_and_starts_as_a_whole(operator: Operator) -> None:
    operator.does("create-vm", "first", "--for", "1h", "--gpu", "A40-24Q", *SMALL)
    gang = ("create-vm", "web", "--count", "2", "--gang", "--queue", "--gpu", "A40-24Q", *SMALL)
    assert [one["queued"] for one in operator.json(*gang)] == [True]
    assert [one["queued"] for one in operator.json(*gang)] == [True]
    assert operator.is_refused(*gang, "--priority", "high")["reference"] == "vm-differs"
    alone = ("create-vm", "web-2", "--queue", "--gpu", "A40-24Q", *SMALL)
    assert operator.is_refused(*alone)["reference"] == "state"
    (waiting,) = queued(operator)
    assert [one["name"] for one in (waiting["entry"]["request"], *waiting["entry"]["others"])] == ["web-1", "web-2"]
    assert waiting["expected_at"] == pytest.approx(time.time() + 3600, abs=300)
    assert "web-1, web-2" in operator.does("list-queue").out
    assert operator.json(*ONCE)[0]["outcome"] == "waits: the 2 VMs do not fit together now"
    operator.does("leave-queue", "--yes", "web-2", "--tenant", "acme")
    assert queued(operator) == []
    assert [one["queued"] for one in operator.json(*gang)] == [True]
    operator.does("delete-vm", "first", "--tenant", "acme", "--yes", "--timeout", "0")
    kill_after(operator, "start", *ONCE)
    assert operator.json(*ONCE)[-1] == {"name": "acme/web-1, web-2", "outcome": "started"}
    assert states(operator) == {"web-1": "running", "web-2": "running"}
    assert (queued(operator), [one["queued"] for one in operator.json(*gang)]) == ([], [False, False])


def test_no_secret_is_shown_or_lies_in_the_store_and_a_queued_vm_starts_with_it(
    operator: Operator, tmp_path: Path
) -> None:
    document = tmp_path / "user-data"
    document.write_text("#cloud-config\npassword: hunter2-of-acme\n")
    seeded = ("--user-data", str(document))
    said = [operator.does("create-vm", "first", "--json", *seeded, *WHOLE)]
    said.append(operator.does("create-vm", "second", "--queue", "--json", *seeded, *WHOLE))
    said += [
        operator.does(*one, "--json")
        for one in (("list-queue",), ("list-vms",), ("repair",), ("explain-vm", "x", *seeded, *WHOLE))
    ]
    said.append(operator.does("show-vm", "first", "--tenant", "acme", "--xml", "--json"))
    assert operator.json("create-vm", "first", *seeded, *WHOLE)[0]["changed"] is False
    document.write_text("#cloud-config\npassword: hunter2-of-others\n")
    for name in ("first", "second"):
        said.append(operator.run("create-vm", name, "--queue", *seeded, *WHOLE))
        assert (said[-1].code, "cloud_init.user_data: differs" in said[-1].err) == (6, True), said[-1].err
    stored = Path(operator.database.removeprefix("sqlite:///"))
    files = b"".join(file.read_bytes() for file in stored.parent.glob(f"{stored.name}*"))
    assert b"hunter2" not in files
    assert not [one for one in said if "hunter2" in one.out + one.err]
    operator.does("delete-vm", "first", "--tenant", "acme", "--yes", "--timeout", "0")
    assert operator.json(*ONCE)[0] == {"name": "acme/second", "outcome": "started"}


@pytest.mark.long(
    "tests/e2e/placement/test_queue.py::test_nobody_overtakes_one_that_another_controller_is_serving",
    "tests/unit/quota/test_queue_order.py::test_who_waits_long_enough_comes_first_whatever_else_waits",
)
def test_nobody_overtakes_one_that_waited_long_on_the_hosts_that_it_could_use(operator: Operator) -> None:
    elsewhere = ("--gpu", "passthrough", *SMALL[:-1], "sim-003")
    operator.does("create-vm", "half", "--gpu", "A40-24Q", *SMALL)
    operator.does("create-vm", "other-half", "--gpu", "A40-24Q", *SMALL)
    operator.does("create-vm", "long", "--queue", *WHOLE)
    operator.does("create-vm", "late", "--queue", "--gpu", "A40-24Q", *SMALL)
    operator.does("create-vm", "card", *elsewhere)
    operator.does("create-vm", "card-later", "--queue", *elsewhere)
    for name in ("half", "card"):
        operator.does("delete-vm", name, "--tenant", "acme", "--yes", "--timeout", "0")
    operator.does("set-queue", "fifo", "--ageing", "0.01s")
    both = (*ONCE[:-1], "sim-001:sim-003")
    deadline, outcomes = time.monotonic() + 60, dict[str, str]()
    while "acme/card-later" not in outcomes:
        assert time.monotonic() < deadline
        outcomes |= {one["name"]: one["outcome"].partition(":")[0] for one in operator.json(*both)}
    assert outcomes == {"acme/long": "waits", "acme/card-later": "started"}
    operator.does("set-queue", "fifo", "--ageing", "1h")
    assert {"name": "acme/late", "outcome": "started"} in operator.json(*ONCE)


def test_nobody_overtakes_one_that_another_controller_is_serving(operator: Operator) -> None:
    operator.does("create-vm", "half", "--gpu", "A40-24Q", *SMALL)
    operator.does("create-vm", "long", "--queue", *WHOLE)
    operator.does("create-vm", "late", "--queue", "--gpu", "A40-24Q", *SMALL)
    operator.does("set-queue", "fifo", "--ageing", "0.01s")
    with open_store(operator.database) as store:
        with store.reading() as session:
            (long,) = (one for one in session.queue() if one.request.name == "long")
        with store.claim(long) as claim:
            assert claim is not None
            assert operator.json(*ONCE) == []
    operator.does("set-queue", "fifo", "--ageing", "1h")
    assert {"name": "acme/late", "outcome": "started"} in operator.json(*ONCE)


def test_a_requeued_vm_starts_again_after_the_one_it_gave_way_to(operator: Operator) -> None:
    operator.does("create-vm", "batch", "--priority", "low", "--preemptible", "requeue", *WHOLE)
    operator.does("create-vm", "urgent", "--priority", "high", "--for", "1h", *PREEMPT, *WHOLE)
    assert states(operator) == {"batch": "stopped", "urgent": "running"}
    assert [one["entry"]["reason"] for one in queued(operator)] == ["preempted by acme/urgent"]
    assert [one["outcome"] for one in operator.later(3700).json(*ONCE)] == ["ended", "started"]
    assert states(operator) == {"batch": "running", "urgent": "stopped"}
    assert queued(operator) == []


def test_the_controller_preempts_only_with_consent(operator: Operator) -> None:
    operator.does("set-quota", "acme", "--grace", "0")
    operator.does("create-vm", "batch", "--priority", "low", "--preemptible", "requeue", *WHOLE)
    urgent = ("create-vm", "urgent", "--queue", "--priority", "high", *WHOLE)
    assert operator.json(*urgent)[0]["queued"]
    needed = "acme/urgent fits only if 1 VM is preempted: acme/batch"
    assert operator.json(*ONCE) == [{"name": "acme/urgent", "outcome": f"waits: {needed}"}]
    assert [one["entry"]["reason"] for one in queued(operator)] == [needed]
    assert operator.json("set-quota", "acme", "--preempt", "auto")["changed"]
    assert operator.json(*ONCE)[0] == {"name": "acme/urgent", "outcome": "started"}
    assert states(operator) == {"batch": "stopped", "urgent": "running"}
    operator.does("set-quota", "acme", "--preempt", "ask")

    operator.does("leave-queue", "--yes", "batch", "--tenant", "acme")
    operator.does("create-vm", "blocks", "--queue", "--priority", "critical", *WHOLE)
    operator.does("create-vm", "later", "--queue", "--priority", "critical", "--preempt", *WHOLE)
    assert [one["entry"]["may_preempt"] for one in queued(operator)] == [False, True]


@pytest.mark.long(
    "tests/unit/scheduler/test_gang_victims.py::test_a_gang_is_preempted_whole_also_on_hosts_that_nobody_asked_for",
    "tests/e2e/placement/test_queue.py::test_a_requeued_vm_starts_again_after_the_one_it_gave_way_to",
    "tests/e2e/placement/test_queue.py::test_a_gang_waits_and_starts_as_a_whole",
)
def test_a_gang_is_preempted_and_comes_back_whole(operator: Operator) -> None:
    low = ("--priority", "low", "--preemptible", "requeue", "--gpu", "A40-24Q", *SMALL)
    operator.does("create-vm", "pair", "--count", "2", "--gang", *low)
    urgent = ("create-vm", "urgent", "--priority", "high", "--gpu", "A40-24Q", *SMALL, "--dry-run")
    assert operator.is_refused(*urgent)["reference"] == "preemption-needed", "as without --dry-run"
    (planned,) = operator.json(*urgent, "--preempt")
    assert [one["vm"] for one in planned["victims"]] == ["acme/pair-1", "acme/pair-2"], "half a gang is no gang"
    operator.does("create-vm", "urgent", "--priority", "high", "--for", "1h", "--gpu", "A40-24Q", *PREEMPT, *SMALL)
    assert states(operator) == {"pair-1": "stopped", "pair-2": "stopped", "urgent": "running"}
    (entry,) = (one["entry"] for one in queued(operator))
    assert (entry["kind"], entry["request"]["name"], len(entry["others"])) == ("start-gang", "pair-1", 1)
    operator.does("create-vm", "half", "--gpu", "A40-24Q", *SMALL)
    assert [one["outcome"] for one in operator.later(3700).json(*ONCE)] == [
        "ended", "waits: the 2 VMs of the gang do not fit together on their hosts now",
    ]  # fmt: skip
    assert states(operator)["pair-1"] == "stopped"
    operator.does("delete-vm", "half", "--tenant", "acme", "--yes", "--timeout", "0")
    assert operator.json(*ONCE) == [{"name": "acme/pair-1, pair-2", "outcome": "started"}]
    assert states(operator) == {"pair-1": "running", "pair-2": "running", "urgent": "stopped"}
    assert queued(operator) == []


@pytest.mark.long(
    "tests/integration/store/test_store_queue.py::test_a_vm_that_is_gone_waits_for_no_start",
    "tests/e2e/placement/test_queue.py::test_an_offboarded_tenant_has_nothing_in_the_queue",
)
def test_a_deleted_vm_leaves_the_queue_and_is_not_started(operator: Operator) -> None:
    operator.does("create-vm", "batch", "--priority", "low", "--preemptible", "requeue", *WHOLE)
    operator.does("create-vm", "urgent", "--priority", "high", *PREEMPT, *WHOLE)
    assert [one["entry"]["request"]["name"] for one in queued(operator)] == ["batch"]
    operator.does("delete-vm", "batch", "--tenant", "acme", "--yes", "--timeout", "0")
    assert queued(operator) == []
    operator.does("delete-vm", "urgent", "--tenant", "acme", "--yes", "--timeout", "0")
    assert (operator.json(*ONCE), states(operator)) == ([], {})


def test_an_offboarded_tenant_has_nothing_in_the_queue(operator: Operator) -> None:
    operator.does("create-tenant", "leaver")
    operator.does("create-vm", "first", *WHOLE)
    late = ("create-vm", "late", "--queue", "--gpu", "A40-48Q", "--tenant", "leaver", *SMALL[2:])
    assert operator.json(*late)[0]["queued"]
    assert "queue entry of late" in operator.does("offboard-tenant", "leaver", "--dry-run").err
    operator.does("offboard-tenant", "leaver", "--yes")
    assert queued(operator) == []


def test_shares_that_a_stopped_vm_keeps_for_a_time_are_released(operator: Operator) -> None:
    operator.does("create-vm", "held", "--for", "1h", *WHOLE)
    stop = ("stop-vm", "held", "--tenant", "acme", "--timeout", "0")
    operator.does(*stop, "--hold-for", "2h")
    assert "shares kept until" in operator.does("show-vm", "held", "--tenant", "acme").out
    assert operator.is_refused(*stop, "--hold", "release", "--hold-for", "2h")["reference"] == "usage"
    operator.json("create-vm", "next", "--queue", *WHOLE)
    (waiting,) = queued(operator)
    assert waiting["expected_at"] == pytest.approx(time.time() + 7200, abs=300)
    assert operator.json(*stop, "--hold-for", "1h")["changed"]
    assert [one["outcome"] for one in operator.later(3700).json(*ONCE)] == ["released", "started"]
    assert states(operator) == {"held": "stopped", "next": "running"}


def test_a_quota_that_could_never_admit_it_refuses_at_once(operator: Operator) -> None:
    operator.does("set-quota", "acme", "shares:A40-48Q=0")
    assert operator.is_refused("create-vm", "never", "--queue", *WHOLE)["reference"] == "quota-exceeded"
    operator.does("set-quota", "acme", "shares:A40-48Q=none")
    assert queued(operator) == []


def test_one_that_no_host_can_ever_take_waits_and_its_reason_says_so(operator: Operator) -> None:
    never = "no host of the fleet can ever take it: "
    large = ("create-vm", "large", "--queue", *WHOLE, "--memory", "4000GiB")
    assert f"acme/large: waits in the queue: {never}" in operator.does(*large).err
    said = operator.does("create-vm", "several", "--queue", *SMALL, "--gpu", "9*A40-48Q").err
    assert f"acme/several: waits in the queue: {never}" in said, "also of one that waits for others"
    assert "`vgpuctl leave-queue acme/several` takes it out" in said
    assert ["waits" in one["outcome"] for one in operator.json(*ONCE)] == [True, True]
    assert {one["entry"]["reason"].partition(": ")[0] for one in queued(operator)} == {never.removesuffix(": ")}
    _clear(operator)
    operator.does("create-vm", "first", *WHOLE)
    assert "can ever take" not in operator.does("create-vm", "second", "--queue", *WHOLE).err
    _forget_facts(operator)
    assert "can ever take" not in operator.does(*large).err, "a host that was not read may have the memory"


def test_a_command_on_a_queued_vm_says_that_it_waits(operator: Operator) -> None:
    operator.does("create-vm", "first", *WHOLE)
    operator.does("create-vm", "second", "--queue", *WHOLE)
    refused = operator.is_refused("rename-vm", "acme/second", "third")
    assert refused["message"] == "VM acme/second waits in the queue and is not created yet"
    assert "vgpuctl leave-queue acme/second" in refused["hint"]


def test_nobody_is_expected_to_start_over_quota(operator: Operator) -> None:
    operator.does("create-vm", "small", *SMALL)
    operator.does("set-quota", "acme", "vms=1")
    operator.does("create-vm", "second", "--queue", *WHOLE)
    (waiting,) = queued(operator)
    assert "quota" in waiting["entry"]["reason"] and waiting["expected_at"] is None
    assert " not known " in operator.does("list-queue").out
    operator.does("set-quota", "acme", "vms=none")
    assert queued(operator)[0]["expected_at"] == pytest.approx(time.time(), abs=300)


def _forget_facts(operator: Operator) -> None:
    with open_store(operator.database) as store, store.transaction() as session:
        for name in session.all_facts():
            session.forget_facts(name)


def test_a_controller_reads_hosts_whose_facts_an_older_vgpuctl_wrote(operator: Operator) -> None:
    operator.does("create-vm", "first", *WHOLE)
    operator.does("create-vm", "second", "--queue", "--gpu", "A40-48Q", *SMALL[:-2], "--limit", "sim-001")
    _forget_facts(operator)
    (waits,) = operator.json(*ONCE)
    assert waits["outcome"].startswith("waits: no GPU can take A40-48Q")
    operator.does("delete-vm", "first", "--tenant", "acme", "--yes", "--timeout", "0")
    _forget_facts(operator)
    assert operator.json(*ONCE) == [{"name": "acme/second", "outcome": "started"}]
