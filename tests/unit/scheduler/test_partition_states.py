# SPDX-License-Identifier: Apache-2.0
"""What list-partitions tells is what placing does: a VM gets a free partition, and none where no such size is free."""

import random
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import vm
from tests.unit.scheduler.test_partitions import CARDS, VGPUS, Facts, active, facts, leases, modules
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.partition_states import PartitionState, PartitionView, view_fleet
from vgpuctl.sharing.host_fabric import ManagerState, fabric_of

__all__ = ["facts"]

FREE, ACTIVE = PartitionState.FREE, PartitionState.ACTIVE


def views(board: HostFacts, taken: list[Lease]) -> dict[int, PartitionView]:
    return {one.number: one for one in view_fleet([HostCapacity("h", board)], taken)}


def with_lost_links(board: HostFacts, *lost: int) -> HostFacts:
    """The host on which these modules have lost a link in each partition of several GPUs."""
    manager = board.fabric_manager
    assert manager is not None
    told = tuple(
        replace(
            one,
            gpus=tuple(
                replace(gpu, links=max(0, gpu.links - 1)) if gpu.module in lost and len(one.gpus) > 1 else gpu
                for gpu in one.gpus
            ),
        )
        for one in manager.partitions or ()
    )
    return replace(board, fabric_manager=replace(manager, partitions=told))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("mix", "gpu"), [("shared", CARDS), ("vgpu", VGPUS), ("a100-16", "passthrough:A100")])
def test_placing_takes_what_is_free_and_nothing_else(facts: Facts, mix: str, gpu: str, seed: int) -> None:
    dice = random.Random(seed)
    board = with_lost_links(facts(mix), *dice.sample(range(1, 9), dice.choice([0, 1, 2])))
    fleet, alive = Fleet([HostCapacity("h", board)]), dict[str, list[Lease]]()
    for number in range(40):
        if alive and dice.random() < 0.45:
            fleet.release("h", alive.pop(dice.choice(sorted(alive))))
            continue
        count = dice.choice([1, 1, 2, 4, 8])
        taken = [one for own in alive.values() for one in own]
        now = views(board, taken)
        free = [one for one in now.values() if one.state is FREE and len(one.gpus) == count]
        placement = fleet.place(vm(f"{gpu}*{count}"))
        found = modules(board, placement)
        assert found in [[gpu.module for gpu in one.gpus] for one in free] if free else placement is None
        if placement is not None:
            alive[f"vm-{number}"] = leases(placement, f"vm-{number}")
            fleet.take("h", alive[f"vm-{number}"])


INACTIVE = "its VM is declared running, and it is not active: see `vgpuctl check-vm`, `vgpuctl repair`"


def test_a_partition_is_what_fabric_manager_and_the_leases_say_together(facts: Facts) -> None:
    board = facts("shared")
    placement = Fleet([HostCapacity("h", board)]).place(vm(f"{CARDS}*2"))
    assert placement is not None
    kept = [replace(one, tenant="acme", vm_name="web", state=LeaseState.BUILT) for one in leases(placement, "web")]
    running = [replace(one, state=LeaseState.RUNNING) for one in kept]
    for told, own, wanted in (
        (board, running, (PartitionState.INACTIVE, "acme/web", INACTIVE)),
        (active(board, 3), kept, (ACTIVE, "acme/web", None)),
        (board, kept, (PartitionState.BLOCKED, None, "module 1, 3: acme/web")),
        (active(board, 3), [], (PartitionState.STRAY, None, "it is active, and no VM of the store has its GPUs")),
    ):
        found = views(told, own)
        assert (found[3].state, found[3].vm, found[3].why) == wanted
        assert found[1].state is PartitionState.BLOCKED and found[4].state is FREE
    # A larger partition around the VM's is not its own.
    around = views(active(board, 1), running)
    assert (around[1].state, around[3].state) == (PartitionState.STRAY, PartitionState.INACTIVE)
    assert views(replace(board, fabric_manager=None), running) == {}


def test_a_gpu_that_nobody_knows_and_one_with_mig_block(facts: Facts) -> None:
    board = facts("vgpu")
    one, two, *others = board.gpus
    assert one.topology is not None and two.mig is not None
    changed = (
        replace(one, topology=replace(one.topology, module=None)),
        replace(two, mig=replace(two.mig, current=True)),
        *others,
    )
    found = views(replace(board, gpus=changed), [])
    assert found[3].why == "module 1: nobody knows which GPU it is" and found[3].gpus[0].address is None
    assert found[4].why == "module 2: MIG is on" and found[5].state is FREE


@pytest.mark.parametrize(
    ("mix", "generation", "mode"),
    [("shared", 4, "shared"), ("bare", 4, "bare"), ("b200", 5, "shared"), ("a100-16", 3, "shared")],
)
def test_the_fabric_of_a_host_is_told(facts: Facts, mix: str, generation: int, mode: str) -> None:
    board = facts(mix)
    fabric = fabric_of(board)
    assert fabric is not None
    assert (fabric.nvlink_generation, fabric.mode, fabric.lost_links) == (generation, mode, ())
    assert fabric.modules == {number: gpu.address for number, gpu in enumerate(board.gpus, 1)}
    assert fabric.manager is not ManagerState.STARTING
    # Fabric Manager of a mode without partitions is not asked; NVML shows a link that is down.
    gpu = board.gpus[0]
    assert gpu.topology is not None and gpu.topology.nvlinks
    first = replace(gpu.topology.nvlinks[0], is_active=False)
    worse = replace(gpu, topology=replace(gpu.topology, nvlinks=(first, *gpu.topology.nvlinks[1:])))
    told = fabric_of(replace(board, gpus=(worse, *board.gpus[1:])))
    assert told is not None
    assert [(one.module, one.lost) for one in told.lost_links] == ([(1, len(first.numbers))] if mode == "bare" else [])
    assert fabric_of(replace(board, fabric_manager=None, gpus=())) is None


def test_lost_links_are_told_by_module_and_card(facts: Facts) -> None:
    board = with_lost_links(facts("shared"), 3)
    fabric = fabric_of(board)
    assert fabric is not None
    (lost,) = fabric.lost_links
    assert (lost.module, lost.gpu, lost.lost, lost.links) == (3, board.gpus[2].address, 1, 18)
