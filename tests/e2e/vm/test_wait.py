# SPDX-License-Identifier: Apache-2.0
"""wait: until VMs of simulated hosts are running, stopped, placed or deleted, or never can be."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.e2e.terminal import Terminal, on_terminal
from vgpuctl.model.vm import VmState
from vgpuctl.store.store import open_store

__all__ = ["operator"]

FLEET = (2, "a40")
HOST = ("--host", "sim-001")


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator) -> Iterator[None]:
    yield
    operator.delete_all_vms()


def _power_off(operator: Operator, name: str) -> None:
    """As its guest would, without any word to vgpuctl."""
    with libvirt_of(operator.inventory, "sim-001") as there:
        there.connection.lookupByName(f"acme.{name}").destroy()


@contextlib.contextmanager
def _waiting(operator: Operator, *arguments: str) -> Iterator[Terminal]:
    """A wait that has begun."""
    with on_terminal(operator, "wait", *arguments) as terminal:
        assert b" s; waiting for " in terminal.wait_for("waiting for ")
        yield terminal


def test_a_vm_that_is_there_needs_no_wait_and_one_that_is_not_fails_at_once(operator: Operator) -> None:
    operator.does("create-vm", "web-1", *ACME, *SIZE, *HOST)
    assert operator.does("wait", "acme/web-1", "--for", "running", "--timeout", "0").out == (
        "acme/web-1: running on sim-001, 0 s\n"
    )
    assert operator.json("wait", "acme/*", "--for", "placed")[0]["host"] == "sim-001"
    assert operator.is_refused("wait", "acme/web-9", "--for", "running")["reference"] == "not-found"
    gone = operator.json("wait", "acme/web-9", "--for", "deleted")
    assert (gone["state"], gone["is_met"], gone["host"]) == ("deleted", True, None)
    assert operator.is_refused("wait", "acme/web-1", "--for", "running", "--timeout", "soon")["exit_code"] == 2


def test_a_guest_that_ends_behind_our_back_is_stopped_and_does_not_run(operator: Operator) -> None:
    operator.does("create-vm", "web-1", *ACME, *SIZE, *HOST)
    with _waiting(operator, "acme/web-1", "--for", "stopped") as terminal:
        _power_off(operator, "web-1")
        terminal.ends_with(0)
        assert b"\racme/web-1: stopped on sim-001, " in terminal.seen
    late = operator.is_refused("wait", "acme/web-1", "--for", "running", "--timeout", "1s")
    assert (late["exit_code"], late["reference"]) == (13, "wait-timed-out")
    assert late["message"] == "1 of 1 VM is not running after 1s"
    assert "acme/web-1: shut-off" in late["context"][0] and "declared running" in late["context"][0]


def test_a_vm_in_the_queue_is_awaited_and_its_reason_is_told(operator: Operator) -> None:
    whole = ("--gpu", "A40-48Q", *ACME, *SIZE, *HOST)
    operator.does("create-vm", "first", *whole)
    operator.does("create-vm", "second", "--queue", *whole)
    late = operator.is_refused("wait", "--all", *ACME, "--for", "running", "--timeout", "1s")
    assert late["message"] == "1 of 2 VMs are not running after 1s" and "list-controllers" in late["hint"]
    assert late["context"][0].startswith("acme/second: queued: ") and "A40-48Q" in late["context"][0]
    with _waiting(operator, "acme/second", "--for", "running") as terminal:
        terminal.wait_for("1 VM to be running; acme/second: queued: ")
        operator.does("delete-vm", "acme/first", "--yes", "--timeout", "0")
        operator.does("controller", "--once", "--limit", "sim-001")
        terminal.ends_with(0)
        assert b"\racme/second: running on sim-001, " in terminal.seen


def test_a_vm_that_leaves_the_queue_or_is_broken_ends_the_wait_at_once(operator: Operator) -> None:
    whole = ("--gpu", "A40-48Q", *ACME, *SIZE, *HOST)
    operator.does("create-vm", "first", *whole)
    operator.does("create-vm", "second", "--queue", *whole)
    with _waiting(operator, "acme/second", "--for", "placed") as terminal:
        operator.does("leave-queue", "--yes", "second", *ACME)
        terminal.ends_with(6)
        assert b"acme/second cannot be placed: it was deleted or has left the queue" in terminal.seen
    uuid = operator.json("show-vm", "acme/first")["vm"]["uuid"]
    with open_store(operator.database) as store, store.transaction() as session:
        session.set_vm_state(uuid, VmState.BROKEN, "its disk is gone")
    broken = operator.is_refused("wait", "acme/first", "--for", "running")
    assert (broken["exit_code"], broken["context"]) == (6, ["its disk is gone"]) and "repair" in broken["hint"]


def test_a_deletion_is_awaited_by_names_that_existed_at_the_beginning(operator: Operator) -> None:
    for name in ("web-1", "web-2"):
        operator.does("create-vm", name, *ACME, *SIZE, *HOST)
    with _waiting(operator, "acme/web-*", "--for", "deleted") as terminal:
        operator.does("delete-vm", "acme/web-*", "--yes", "--timeout", "0")
        terminal.ends_with(0)
        assert b"\racme/web-1: deleted, " in terminal.seen and b"acme/web-2: deleted, " in terminal.seen
