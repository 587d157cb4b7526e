# SPDX-License-Identifier: Apache-2.0
"""list-partitions: which partition of which host a VM has, which are free, and why the others are not."""

from collections.abc import Iterator
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from vgpuctl.agent.fabric_manager import FabricManager
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost

__all__ = ["operator"]

FLEET = (4, "h100-sxm5/passthrough~fabric-shared*8,h100-sxm5~fabric-vgpu*8,h100-sxm5/passthrough*8,a40")
SHARED, VGPU, BARE, PLAIN = "sim-001", "sim-002", "sim-003", "sim-004"
GPU_1, GPU_3 = "0000:41:00.0", "0000:45:00.0"


@pytest.fixture(autouse=True)
def healed(operator: Operator, fleet: lab.LabFolder) -> Iterator[None]:
    """After a test no fault is left, and no partition is active."""
    yield
    lab.faults.clear(SHARED, folder=fleet)
    operator.delete_all_vms()
    operator.json("repair")
    operator.does("list-gpus", "--refresh", "--limit", SHARED)


def create(operator: Operator, name: str, gpu: str, host: str) -> None:
    operator.does("create-vm", name, *ACME, *SIZE, "--gpu", gpu, "--host", host)


def rows(operator: Operator, host: str, *more: str) -> dict[int, dict[str, Any]]:
    return {one["number"]: one for one in operator.json("list-partitions", "--limit", host, *more)}


def states(operator: Operator, host: str, *more: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, one in rows(operator, host, *more).items():
        found.setdefault(one["state"], []).append(number)
    return found


_VGPUS = pytest.mark.long(
    "tests/e2e/host/test_list_partitions.py::"
    "test_a_partition_is_its_vms_while_it_runs_and_blocks_those_that_share_a_gpu"
)
_STARTING = pytest.mark.long(
    "tests/e2e/host/test_list_partitions.py::test_a_fabric_manager_that_tells_none_is_an_error_and_others_are_listed",
    "tests/agent/test_fabric_manager.py::test_facts_say_why_partitions_are_not_known",
)


@pytest.mark.parametrize(
    ("host", "gpu"), [(SHARED, "passthrough:H100*2"), pytest.param(VGPU, "H100XM-80C*2", marks=_VGPUS)]
)
def test_a_partition_is_its_vms_while_it_runs_and_blocks_those_that_share_a_gpu(
    operator: Operator, host: str, gpu: str
) -> None:
    assert states(operator, host) == {"free": list(range(15))}
    create(operator, "web", gpu, host)
    for more in ((), ("--refresh",)):  # the cached facts are those before the start
        found = rows(operator, host, *more)
        assert states(operator, host, *more) == {
            "active": [3],
            "blocked": [0, 1, 7, 9],
            "free": [2, 4, 5, 6, 8, *range(10, 15)],
        }
        assert (found[3]["vm"], found[3]["why"]) == ("acme/web", None)
        assert [(one["module"], one["address"]) for one in found[3]["gpus"]] == [(1, GPU_1), (3, GPU_3)]
        assert (found[7]["vm"], found[7]["why"]) == (None, "module 1: acme/web")
        assert found[0]["why"] == "module 1, 3: acme/web"
    full = operator.does("map", "-l", host).out
    assert (
        "module 1, partition 3 active for acme/web" in " ".join(full.split()) and max(map(len, full.splitlines())) < 81
    )
    drawn = {one["module"]: one["partition"] for one in operator.json("map", "-l", host)["gpus"]}
    assert drawn[3] == {"number": 3, "vm": "acme/web"} and drawn[2] is None
    operator.does("stop-vm", "web", *ACME, "--timeout", "0", "--hold", "keep")
    assert states(operator, host, "--refresh")["blocked"] == [0, 1, 3, 7, 9]
    operator.does("delete-vm", "web", *ACME, "--yes")
    assert states(operator, host) == {"free": list(range(15))}


@pytest.mark.long(
    "tests/unit/scheduler/test_partition_states.py::test_lost_links_are_told_by_module_and_card",
    "tests/unit/scheduler/test_partition_states.py::"
    "test_a_partition_is_what_fabric_manager_and_the_leases_say_together",
)
def test_lost_links_foreign_activations_and_closed_gpus_are_told(operator: Operator, fleet: lab.LabFolder) -> None:
    lab.faults.begin(SHARED, "nvlink-failed", 3, folder=fleet)
    with FabricManager(SimulatedHost(str(simulated_folder(fleet).host(SHARED)))) as manager:
        manager.activate(4)
    operator.does("cordon-host", SHARED, "--gpu", "0000:49:00.0", "--reason", "fan is loud")
    found = rows(operator, SHARED, "--refresh")
    assert (found[3]["state"], found[3]["why"]) == ("broken", "module 1 has lost 3 of 18 NVLinks")
    assert found[7]["state"] == "free"  # a GPU alone needs no NVLink
    assert (found[4]["state"], found[4]["vm"]) == ("stray", None)
    assert found[8]["why"] == "module 2: partition 4 is active"
    assert "fan is loud" in found[2]["why"] and found[2]["why"].startswith("module 5: ")
    table = operator.does("list-partitions", "-l", SHARED, "--filter", "state=stray").out
    assert "it is active, and no VM of the store has its GPUs" in table
    wide = operator.does("list-partitions", "--free", "-l", SHARED, "-o", "wide").out
    assert "0000:41:00.0" in wide and "blocked" not in wide
    operator.does("uncordon-host", SHARED, "--gpu", "0000:49:00.0")
    with FabricManager(SimulatedHost(str(simulated_folder(fleet).host(SHARED)))) as manager:
        manager.deactivate(4)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("fabric-dead", "is silent: connecting"),
        pytest.param("fabric-starting", "is starting: listing", marks=_STARTING),
    ],
)
def test_a_fabric_manager_that_tells_none_is_an_error_and_others_are_listed(
    operator: Operator, fleet: lab.LabFolder, fault: str, said: str
) -> None:
    lab.faults.begin(SHARED, fault, folder=fleet)
    done = operator.run("list-partitions", "--refresh")
    assert done.code == 10 and f"{SHARED}: Fabric Manager {said}" in done.err
    assert VGPU in done.out and SHARED not in done.out
    shown = operator.does("inspect-host", SHARED).out
    assert f"Fabric Manager {said}" in shown


def test_hosts_without_partitions_are_told_with_the_reason(operator: Operator) -> None:
    for host, why in ((BARE, "FABRIC_MODE 0 (bare) has no partitions"), (PLAIN, "no NVSwitch")):
        done = operator.does("list-partitions", "-l", host)
        assert (done.out, f"{host}: {why}" in done.err) == ("", True)
        assert operator.json("list-partitions", "-l", host) == []
    refused = operator.is_refused("list-partitions", "-l", "nowhere")
    assert "nowhere" in str(refused)


@pytest.mark.long(
    "tests/e2e/host/test_fabric.py::test_inspect_host_tells_partitions_and_why_they_are_not_known",
    "tests/unit/scheduler/test_partition_states.py::test_the_fabric_of_a_host_is_told",
    "tests/unit/scheduler/test_partition_states.py::test_lost_links_are_told_by_module_and_card",
)
def test_inspect_host_tells_the_fabric_of_each_mode(operator: Operator, fleet: lab.LabFolder) -> None:
    create(operator, "web", "passthrough:H100*8", SHARED)
    lab.faults.begin(SHARED, "nvlink-failed", 3, folder=fleet)
    fabric = operator.json("inspect-host", SHARED)["fabric"]
    assert (fabric["nvlink_generation"], fabric["mode"], fabric["manager"]) == (4, "shared", "running")
    assert list(fabric["modules"]) == [str(one) for one in range(1, 9)] and fabric["modules"]["3"] == GPU_3
    assert fabric["lost_links"] == [{"module": 1, "gpu": GPU_1, "lost": 3, "links": 18}]
    shown = operator.does("inspect-host", SHARED).out
    assert "module 1, 0000:41:00.0: 3 of 18 NVLinks have failed" in shown and "  module        3" in shown
    bare = operator.json("inspect-host", BARE)["fabric"]
    assert (bare["mode"], bare["manager"], len(bare["switches"])) == ("bare", "running", 4)
    assert operator.json("inspect-host", PLAIN)["fabric"] is None
