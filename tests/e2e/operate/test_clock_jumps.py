# SPDX-License-Identifier: Apache-2.0
"""Clocks that jump: a host's clock decides nothing, and the operator's ends only what has an end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import vgpuctl_lab as lab
from tests.bench.day_checks import faults, look
from tests.e2e.operator import Done, Operator
from tests.e2e.small_vms import ACME, operator
from vgpuctl.store.store import open_store

__all__ = ["operator"]

HOST = "sim-001"
SIZE = ("--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1", "--network", "none", "--host", HOST)
CREATE = ("create-vm", "web", *ACME, *SIZE)
DELETE = ("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
DAY_S = 86_400.0
CONTROLLER = ("controller", "--once", "--shutdown-timeout", "0")


def at(operator: Operator, now: float, *words: str) -> Done:
    """Run a command whose clock says this all the time."""
    return operator.at(now).does(*words)


def vm(operator: Operator) -> dict[str, object]:
    (found,) = operator.json("list-vms")
    return dict(found)


@contextmanager
def ahead(fleet: lab.LabFolder, seconds: int) -> Iterator[None]:
    lab.faults.begin(HOST, "clock-skew", seconds, folder=fleet)
    try:
        yield
    finally:
        lab.faults.clear(HOST, folder=fleet)


def test_a_hosts_clock_that_jumps_ahead_and_back_changes_nothing(operator: Operator, fleet: lab.LabFolder) -> None:
    with ahead(fleet, 10 * 365 * 86_400):
        operator.does(*CREATE)
        operator.does("list-vms", "--refresh")
        assert abs(float(str(vm(operator)["observed_at"])) - time.time()) < 300
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    operator.does("start-vm", "web", *ACME)
    (gpu,) = [one for one in operator.json("list-gpus", "--refresh") if one["host"] == HOST]
    assert gpu["observation"]["state"] == "present"
    lab.faults.begin(HOST, "xid", 95, folder=fleet)
    operator.does(*DELETE)
    assert "gpu-quarantined" in {one["kind"] for one in operator.json("list-events", "--limit", "20")}
    lab.faults.clear(HOST, folder=fleet)
    operator.does("unquarantine-gpu", HOST, "0000:41:00.0", "--reason", "replaced")
    assert operator.json("repair") == []


_AHEAD = pytest.mark.long(
    "tests/e2e/operate/test_clock_jumps.py::test_the_operators_clock_that_jumps_keeps_store_and_hosts_true",
    "tests/e2e/operate/test_clock_jumps.py::test_a_vm_with_an_end_is_ended_by_the_clock_and_not_before",
)


@pytest.mark.parametrize("jump_s", [pytest.param(-DAY_S, id="back"), pytest.param(DAY_S, id="ahead", marks=_AHEAD)])
def test_the_operators_clock_that_jumps_keeps_store_and_hosts_true(jump_s: float, operator: Operator) -> None:
    now = time.time()
    with open_store(operator.database) as store:
        before = look(store)
        at(operator, now, *CREATE)
        shown = at(operator, now + jump_s, "list-vms").out
        assert "-" not in shown.partition("running")[2].partition("ago")[0], shown
        at(operator, now + jump_s, "list-vms", "--refresh")
        at(operator, now + jump_s, *CONTROLLER)
        assert vm(operator)["observed"] == "running"
        at(operator, now + jump_s, "stop-vm", "web", *ACME, "--timeout", "0")
        at(operator, now + jump_s, "start-vm", "web", *ACME)
        at(operator, now + jump_s, *DELETE)
        assert operator.json("repair") == []
        assert list(faults(before, look(store), {}, now)) == []


def test_a_vm_with_an_end_is_ended_by_the_clock_and_not_before(operator: Operator) -> None:
    now = time.time()
    at(operator, now, *CREATE, "--for", "1h")
    for earlier in (now - DAY_S, now + 3500):
        at(operator, earlier, *CONTROLLER)
        assert dict(vm(operator)["vm"])["state"] == "running"  # type: ignore[call-overload]
    at(operator, now + 3700, *CONTROLLER)
    found = vm(operator)
    assert (dict(found["vm"])["state"], found["leases"]) == ("stopped", [])  # type: ignore[call-overload]
    operator.does(*DELETE)
    assert operator.json("repair") == []
