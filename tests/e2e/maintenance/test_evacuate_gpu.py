# SPDX-License-Identifier: Apache-2.0
"""quarantine-gpu --evacuate: the VMs on a GPU get another one in the kindest way, and those that stay are named."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.kills import kill_after
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator, trust_network

__all__ = ["operator"]

FLEET = (2, "a40*2+rtx-3090*2")
"""Two hosts with two A40s and two cards for whole VMs each."""
HOST = "sim-001"
NOW = ("--evacuate", "--yes", "--shutdown-timeout", "0")


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator) -> Iterator[None]:
    yield
    operator.delete_all_vms()
    operator.does("uncordon-host", "sim-002")
    for one in operator.json("list-gpus"):
        operator.does("unquarantine-gpu", one["host"], one["gpu"]["address"], "--reason", "the test is over")


def _on_first(operator: Operator, gpu: str) -> tuple[str, ...]:
    """Create a VM on the first host, and return the command that puts its GPU in quarantine."""
    operator.does("cordon-host", "sim-002", "--reason", "the test wants the first")
    (made,) = operator.json("create-vm", "web", *ACME, "--gpu", gpu, *SIZE)
    operator.does("uncordon-host", "sim-002")
    return ("quarantine-gpu", HOST, made["leases"][0]["share"]["gpu"], "--reason", "it hums")


def _web(operator: Operator) -> tuple[str, str, str, str]:
    (web,) = [one for one in operator.json("list-vms", "--refresh") if one["vm"]["request"]["name"] == "web"]
    return web["vm"]["host"], web["vm"]["state"], web["observed"], web["leases"][0]["share"]["gpu"]


def _row(told: dict[str, Any]) -> tuple[str, str | None, str | None, str]:
    (row,) = told["vms"]
    return row["verdict"], row["way"], row["to"], row["outcome"]


def test_a_vm_moves_live_from_a_gpu_where_that_can_be(operator: Operator) -> None:
    trust_network(operator)
    quarantine = _on_first(operator, "A40-8Q")
    assert "vms" not in operator.json(*quarantine), "without the flag nothing moves"
    asked = operator.run(*quarantine, "--evacuate")
    assert asked.code != 0
    assert "acme/web: move live sim-002" in asked.err
    assert _web(operator)[0] == HOST
    told = operator.json(*quarantine, *NOW)
    assert (told["changed"], _row(told)) == (True, ("move", "live", "sim-002", "moved"))
    assert _web(operator)[:3] == ("sim-002", "running", "running")
    assert operator.json("list-events", "acme/web", "--kind", "vm-stopped") == []
    (operator.inventory.parent / "group_vars/all.yml").unlink()


@pytest.mark.parametrize(
    ("gpu", "way", "event"), [("A40-8Q", "suspend", "vm-suspended"), ("passthrough", "restart", "vm-stopped")]
)
def test_a_vm_gets_another_card_of_its_host(operator: Operator, gpu: str, way: str, event: str) -> None:
    quarantine = _on_first(operator, gpu)
    before = _web(operator)
    planned = operator.json(*quarantine, *NOW, "--dry-run")
    assert _row(planned) == ("move", way, HOST, "planned")
    assert _web(operator) == before
    events = ("list-events", "acme/web", "--kind", event)
    earlier = len(operator.json(*events))
    told = operator.json(*quarantine, *NOW)
    assert _row(told) == ("move", way, HOST, "moved")
    no_network = "sim-002: running VMs do not move to or from sim-001: its inventory names no network for that"
    assert told["vms"][0]["not_live"] == no_network
    after = _web(operator)
    assert (after[:3], after[3] != before[3]) == ((HOST, "running", "running"), True)
    assert len(operator.json(*events)) == earlier + 1
    again = operator.json(*quarantine, *NOW)
    assert (again["changed"], again["vms"]) == (False, [])
    assert operator.json("repair") == []


def test_a_vm_without_another_card_anywhere_is_named_and_runs_on(operator: Operator) -> None:
    quarantine = _on_first(operator, "A40-8Q")
    before = _web(operator)
    operator.does("cordon-host", "sim-002", "--reason", "rack work")
    other = next(
        one["gpu"]["address"]
        for one in operator.json("list-gpus")
        if one["host"] == HOST and one["gpu"]["address"] != before[3] and "A40" in str(one)
    )
    operator.does("quarantine-gpu", HOST, other, "--reason", "it hums too")
    told = operator.ends(10, *quarantine, *NOW)
    assert _row(told) == ("stay", None, None, "left")
    assert "on sim-001: acme/web cannot start: sim-001, where its disk is, has no room" in told["vms"][0]["reason"]
    assert "rack work" in told["vms"][0]["reason"]
    assert _web(operator) == before
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    assert _row(operator.json(*quarantine, *NOW)) == ("stay", None, None, "stays stopped")


@pytest.mark.long(
    "tests/e2e/maintenance/test_drain_host.py::test_a_drain_that_is_killed_goes_on_and_what_ran_runs",
    "tests/e2e/maintenance/test_evacuate_gpu.py::test_a_vm_gets_another_card_of_its_host",
)
def test_an_evacuation_that_is_killed_goes_on(operator: Operator) -> None:
    quarantine = _on_first(operator, "passthrough")
    before = _web(operator)
    kill_after(operator, "shutdown", *quarantine, *NOW)
    assert _row(operator.json(*quarantine, *NOW)) == ("move", "restart", HOST, "moved")
    after = _web(operator)
    assert (after[:3], after[3] != before[3]) == ((HOST, "running", "running"), True)
    assert operator.json("repair") == []
