# SPDX-License-Identifier: Apache-2.0
"""VMs that wait in the queue are listed, shown and deleted like others."""

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import operator

__all__ = ["operator"]

WHOLE = ("--gpu", "A40-48Q", "--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
ON = ("--host", "sim-001")


@pytest.fixture
def waiting(operator: Operator) -> Operator:
    """An operator with `first`, which runs, and `second`, which waits for the same GPU."""
    operator.delete_all_vms()
    operator.does("create-vm", "first", *WHOLE, *ON)
    assert operator.json("create-vm", "second", "--queue", *WHOLE, *ON)[0]["queued"]
    return operator


def test_a_queued_vm_is_known_to_lists_show_vm_and_delete_vm(waiting: Operator) -> None:
    listed = {one["name"]: one for one in waiting.json("list-vms")}
    assert listed["second"]["vm"] is None
    assert (listed["second"]["state"], listed["second"]["host"]) == ("queued", None)
    assert listed["second"]["queued"]["request"]["name"] == "second"
    assert (listed["first"]["queued"], listed["first"]["host"]) == (None, "sim-001")
    assert "second" in waiting.does("list-vms", "--filter", "state=queued", "-o", "name").out
    assert "first" not in waiting.does("list-vms", "--filter", "state=queued", "-o", "name").out

    shown = waiting.json("show-vm", "acme/second")
    assert (shown["tenant"], shown["name"], shown["state"]) == ("acme", "second", "queued")
    assert "queued to be created" in waiting.does("show-vm", "acme/second").out
    assert "queued" in {one["state"] for one in waiting.json("show-vm", "acme/*")}

    there = waiting.json("show-vm", "acme/first")
    assert there["created_at"] > 1_600_000_000
    assert "vm-created" in {one["kind"] for one in there["events"]}
    text = waiting.does("show-vm", "acme/first").out
    assert "created   " in text
    assert "event     " in text

    assert waiting.json("delete-vm", "acme/second", "--dry-run")["would_delete"] == ["acme/second"]
    assert len(waiting.json("list-queue")["queue"]) == 1
    assert waiting.json("delete-vm", "acme/second", "--yes")["deleted"] == ["acme/second"]
    assert waiting.json("list-queue")["queue"] == []
    assert waiting.is_refused("delete-vm", "acme/second", "--yes")["reference"] == "not-found"
    assert [one["name"] for one in waiting.json("list-vms")] == ["first"]


def test_all_deletes_queued_vms_too(waiting: Operator) -> None:
    deleted = waiting.json("delete-vm", "--all", "-t", "acme", "--yes", "--timeout", "0")["deleted"]
    assert len(deleted) == 2
    assert waiting.json("list-vms") == []
