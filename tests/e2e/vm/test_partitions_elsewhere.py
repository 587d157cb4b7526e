# SPDX-License-Identifier: Apache-2.0
"""Partitions of the NVSwitch fabric when VMs change host, wait, are preempted or reserved for."""

from collections.abc import Iterator

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator, trust_network
from tests.lab.simulated_fixtures import machine

__all__ = ["operator"]

FLEET = (4, "h100-sxm5~fabric-vgpu*8,h100-sxm5/passthrough~fabric-shared*8")
VGPU, SHARED = ("sim-001", "sim-002"), ("sim-003", "sim-004")
FORCED = ("--timeout", "0")


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator, fleet: lab.LabFolder) -> Iterator[None]:
    """Every test ends with nothing to repair and no partition active."""
    yield
    operator.delete_all_vms()
    assert operator.json("repair") == []
    assert {host: active(fleet, host) for host in (*VGPU, *SHARED)} == {host: [] for host in (*VGPU, *SHARED)}


def active(fleet: lab.LabFolder, host: str) -> list[int]:
    return sorted(machine(fleet, host).state().fabric.active)


def create(operator: Operator, name: str, gpu: str, *more: str) -> None:
    operator.does("create-vm", name, *ACME, *SIZE, "--gpu", gpu, *more)


def test_a_vm_moves_with_a_partition_on_either_host(operator: Operator, fleet: lab.LabFolder) -> None:
    trust_network(operator)
    create(operator, "web", "H100XM-80C")
    create(operator, "pair", "H100XM-80C*2")
    here = operator.json("list-vms")[0]["host"]
    there = next(one for one in VGPU if one != here)
    assert (active(fleet, here), active(fleet, there)) == ([4, 7], [])
    operator.does("move-vm", "web", *ACME, "--live-only", "--to", there)
    assert (active(fleet, here), active(fleet, there)) == ([4], [7])
    operator.does("move-vm", "pair", *ACME, "--to", there, "--shutdown-timeout", "0", "--yes")
    assert (active(fleet, here), active(fleet, there)) == ([], [4, 7])
    operator.does("drain-host", there, "--reason", "fans", "--shutdown-timeout", "0", "--yes")
    assert len(active(fleet, here)) == 2 and active(fleet, there) == []
    operator.does("uncordon-host", there, "--force")


@pytest.mark.long(
    "tests/unit/scheduler/test_partitions.py::test_gangs_counts_calendars_and_preemption_know_partitions",
    "tests/e2e/vm/test_preemption.py::test_a_preemptible_vm_is_preempted_by_a_more_important_one_and_no_other_is",
)
def test_a_whole_board_is_had_by_preemption_and_queued_for(operator: Operator, fleet: lab.LabFolder) -> None:
    for number, host in enumerate(SHARED):
        create(operator, f"small-{number}", "passthrough:H100", "--host", host, "--preemptible", "stop")
    refused = operator.run("create-vm", "big", *ACME, *SIZE, "--gpu", "passthrough:H100*8", "--priority", "high")
    assert refused.code
    operator.does(
        "create-vm",
        "big",
        *ACME,
        *SIZE,
        "--gpu",
        "passthrough:H100*8",
        "--priority",
        "high",
        "--preempt",
        "--grace",
        "0",
        "--shutdown-timeout",
        "0",
    )
    assert sorted(active(fleet, SHARED[0]) + active(fleet, SHARED[1])) in ([0, 7], [0])
    operator.does("create-vm", "next", *ACME, *SIZE, "--gpu", "passthrough:H100*8", "--queue", "--priority", "low")
    operator.does("delete-vm", "big", *ACME, "--yes", *FORCED)
    operator.does("controller", "--once")
    assert 0 in active(fleet, SHARED[0]) + active(fleet, SHARED[1])


@pytest.mark.long("tests/unit/scheduler/test_partitions.py::test_gangs_counts_calendars_and_preemption_know_partitions")
def test_what_is_reserved_keeps_its_partition_whole(operator: Operator, fleet: lab.LabFolder) -> None:
    for host in SHARED:
        create(operator, f"one-{host[-1]}", "passthrough:H100", "--host", host)
    for count, more in ((1, 14), (2, 6), (3, 0), (4, 2), (8, 0)):
        wanted = ("capacity", "--gpu", f"passthrough:H100*{count}", "--memory", "64MiB")
        assert operator.json(*wanted)["now"] == more, count
    operator.does("delete-vm", "one-3", "one-4", *ACME, "--yes", *FORCED)
