# SPDX-License-Identifier: Apache-2.0
"""Steps about partitions of the fabric: activated for a VM, deactivated after it, set after a restart."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.simulated import VM, Machine, PatientHost
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.fabric_manager import FabricManager
from vgpuctl.agent.facts import fabric_notes
from vgpuctl.agent.wire.fabric import ActivatePartition, DeactivatePartition, RestorePartitions, UsedPartition
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import BindDriver, RestartFabricManager
from vgpuctl_lab.simulated.machine import faults
from vgpuctl_lab.simulated.machine.domains import HostDevice, end, start

SHARED, VGPU = "h100-sxm5~fabric-shared*8", "h100-sxm5~fabric-vgpu*8"
OTHER = "99999999-2222-4333-8444-555555555555"


def machine(folder: Path, mix: str = SHARED) -> Machine:
    return Machine(folder, mix, with_vfs="vgpu" in mix, host=PatientHost)


def used(simulated: Machine, *modules: int, vm: str = VM) -> UsedPartition:
    """The partition of GPUs by their numbers, with their first VFs where they have any."""
    cards = [simulated.files.shape.cards[module - 1] for module in modules]
    assert [card.links.module for card in cards] == list(modules)
    state = simulated.files.state()
    vfs = [state.vfs_of(card)[0] for card in cards if state.vfs_of(card)]
    return UsedPartition(tuple(card.address for card in cards), tuple(vfs), vm)


def active(simulated: Machine) -> dict[int, str | None]:
    manager = read_facts(simulated.host).fabric_manager
    assert manager is not None
    assert manager.partitions is not None, manager.problem
    return {one.number: one.vm for one in manager.partitions if one.is_active}


def run_vm(simulated: Machine, partition: UsedPartition) -> None:
    whole = simulated.type_id("H100XM-80C")
    for vf in partition.vfs:
        simulated.done(SetVfProfile(vf, whole))
    if not partition.vfs:
        simulated.done(BindDriver(partition.gpus, "vfio-pci"))
    devices = [HostDevice(function=one) for one in partition.vfs or partition.gpus]
    start(simulated.files, partition.vm, partition.vm[:4], devices)


def begin(simulated: Machine, kind: str, value: int = 1) -> None:
    with simulated.files.change() as state:
        faults.set_on_host(simulated.files, state, kind, value)


@pytest.mark.parametrize(("mix", "modules", "number"), [(SHARED, (1, 3), 3), (VGPU, (4, 2), 4), (VGPU, (6,), 12)])
def test_a_partition_lives_as_long_as_its_vm(tmp_path: Path, mix: str, modules: tuple[int, ...], number: int) -> None:
    simulated = machine(tmp_path, mix)
    partition = used(simulated, *modules)
    assert simulated.done(ActivatePartition(partition))
    assert active(simulated) == {number: VM}
    run_vm(simulated, partition)
    assert not simulated.done(ActivatePartition(partition))  # its QEMU runs with it
    assert simulated.refused(DeactivatePartition(partition)).code == ProblemCode.HELD
    end(simulated.files, set())
    assert simulated.done(DeactivatePartition(partition))
    assert not simulated.done(DeactivatePartition(partition))
    assert active(simulated) == {}
    assert fabric_notes.read(simulated.host).partitions == ()


def test_the_modules_are_known_while_a_vm_has_the_cards(tmp_path: Path) -> None:
    simulated = machine(tmp_path)
    partition = used(simulated, 1, 3)
    simulated.done(ActivatePartition(partition))
    run_vm(simulated, partition)
    modules = [gpu.topology.module for gpu in read_facts(simulated.host).gpus if gpu.topology]
    assert modules == list(range(1, 9))
    simulated.reboot()
    simulated.done(BindDriver(partition.gpus, "vfio-pci"))
    assert simulated.done(ActivatePartition(partition))


def test_a_card_that_nobody_saw_with_its_driver_has_no_partition(tmp_path: Path) -> None:
    simulated = machine(tmp_path)
    partition = used(simulated, 1, 3)
    simulated.done(BindDriver(partition.gpus, "vfio-pci"))
    problem = simulated.refused(ActivatePartition(partition))
    assert problem.code == ProblemCode.FABRIC_BAD_PARTITION
    assert partition.gpus[0] in problem.message
    note = simulated.files.root / fabric_notes.PATH.lstrip("/")
    told = json.loads(note.read_text())["modules"]
    moved = [{"path": told[0]["path"].replace("0000:", "0001:"), "module": 1}, *told]
    note.write_text(json.dumps({"modules": moved}))
    assert simulated.refused(ActivatePartition(partition)).code == ProblemCode.FABRIC_BAD_PARTITION


def test_gpus_that_are_no_partition_are_refused_with_the_sizes_that_are(tmp_path: Path) -> None:
    simulated = machine(tmp_path)
    for modules in ((1, 2), (1, 2, 3)):
        problem = simulated.refused(ActivatePartition(used(simulated, *modules)), dry_run=True)
        assert problem.code == ProblemCode.FABRIC_BAD_PARTITION
        assert "1, 2, 4, 8 GPUs" in problem.message
    assert not (simulated.files.root / fabric_notes.PATH.lstrip("/")).exists()


def test_overlaps_and_the_vm_of_another_are_kept_apart(tmp_path: Path) -> None:
    simulated = machine(tmp_path, VGPU)
    four = used(simulated, 1, 2, 3, 4)
    simulated.done(ActivatePartition(four))
    assert simulated.refused(ActivatePartition(used(simulated, 1, vm=OTHER))).code == ProblemCode.FABRIC_GPU_TAKEN
    assert not simulated.done(DeactivatePartition(used(simulated, 1, 2, 3, 4, vm=OTHER)))
    run_vm(simulated, four)
    assert simulated.refused(ActivatePartition(used(simulated, 1, 2, 3, 4, vm=OTHER))).code == ProblemCode.HELD
    assert active(simulated) == {1: VM}


def test_one_that_is_left_active_gets_the_vfs_of_its_next_vm(tmp_path: Path) -> None:
    simulated = machine(tmp_path, VGPU)
    partition = used(simulated, 1, 3)
    simulated.done(ActivatePartition(partition))
    other = UsedPartition(
        partition.gpus,
        tuple(
            simulated.files.state().vfs_of(card)[1]
            for card in simulated.files.shape.cards
            if card.address in partition.gpus
        ),
        OTHER,
    )
    assert simulated.refused(ActivatePartition(other)).code == ProblemCode.FABRIC_PARTITION_ACTIVE  # its VM may start
    simulated.host.wait(121)
    assert simulated.done(ActivatePartition(other))
    assert active(simulated) == {3: OTHER}
    [noted] = fabric_notes.read(simulated.host).partitions
    assert noted.used == other


@pytest.mark.parametrize("mix", [SHARED, VGPU])
def test_a_restarted_fabric_manager_is_told_the_partitions_of_running_vms(tmp_path: Path, mix: str) -> None:
    simulated = machine(tmp_path, mix)
    first, second, third = used(simulated, 1, 3), used(simulated, 5, vm=OTHER), used(simulated, 6, vm=VM[:-1] + "9")
    for one in (first, second, third):
        simulated.done(ActivatePartition(one))
    run_vm(simulated, first)
    run_vm(simulated, second)
    begin(simulated, "fabric-restarted")
    assert simulated.done(RestorePartitions((first, second)))
    assert active(simulated) == {3: VM, 11: OTHER}
    assert not simulated.done(RestorePartitions((first, second)))
    # The same by any step that meets it, and with no VM that runs.
    begin(simulated, "fabric-restarted")
    simulated.done(ActivatePartition(used(simulated, 7)))
    assert sorted(active(simulated)) == [3, 11, 13]
    end(simulated.files, set())
    begin(simulated, "fabric-restarted")
    assert simulated.done(RestorePartitions(()))
    assert active(simulated) == {}


def test_one_that_came_too_late_or_lost_all_gets_them_activated_again(tmp_path: Path) -> None:
    simulated = machine(tmp_path)
    first = used(simulated, 1, 3)
    simulated.done(ActivatePartition(first))
    run_vm(simulated, first)
    begin(simulated, "fabric-starting", 10)  # it sets the fabric up anew, and has no partition active
    assert simulated.done(RestorePartitions((first,)))
    assert active(simulated) == {3: VM}
    begin(simulated, "fabric-dead")
    assert simulated.refused(RestorePartitions((first,))).code == ProblemCode.FABRIC_UNREACHABLE
    problem = simulated.refused(ActivatePartition(used(simulated, 5)))
    assert problem.code == ProblemCode.FABRIC_UNREACHABLE


def test_one_whose_start_ends_before_it_is_told_gets_them_activated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = machine(tmp_path)
    first = used(simulated, 1, 3)
    simulated.done(ActivatePartition(first))
    run_vm(simulated, first)
    begin(simulated, "fabric-starting", 600)
    tell = FabricManager.set_active

    def start_ends(manager: FabricManager, numbers: Sequence[int]) -> None:
        begin(simulated, "fabric-starting", 0)
        tell(manager, numbers)

    monkeypatch.setattr(FabricManager, "set_active", start_ends)
    assert simulated.done(RestorePartitions((first,)))
    assert active(simulated) == {3: VM}


def test_a_dry_run_tells_and_changes_nothing(tmp_path: Path) -> None:
    simulated = machine(tmp_path)
    first = used(simulated, 1, 3)
    reply = simulated.take(ActivatePartition(first), dry_run=True)
    assert [(one.before, one.after, one.changed) for one in reply.changes] == [("inactive", "active: 3", True)]
    simulated.done(ActivatePartition(first))
    reply = simulated.take(DeactivatePartition(first), dry_run=True)
    assert [(one.before, one.after) for one in reply.changes] == [("active: 3", "inactive")]
    fifth = used(simulated, 5, vm=OTHER)
    assert simulated.refused(RestorePartitions((fifth,)), dry_run=True).code == ProblemCode.HOLDERS_UNKNOWN
    run_vm(simulated, fifth)
    reply = simulated.take(RestorePartitions((fifth,)), dry_run=True)
    assert [(one.before, one.after, one.changed) for one in reply.changes] == [("3", "3, 11", True)]
    assert active(simulated) == {3: VM}


def test_a_damaged_note_is_told_and_named(tmp_path: Path) -> None:
    simulated = machine(tmp_path)
    note = simulated.files.root / fabric_notes.PATH.lstrip("/")
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("{")
    problem = simulated.refused(ActivatePartition(used(simulated, 1)))
    assert fabric_notes.PATH in problem.message
    assert [one.name for one in read_facts(simulated.host).unread] == ["fabric_modules"]


def test_a_restart_keeps_the_partitions_of_others(tmp_path: Path) -> None:
    simulated = machine(tmp_path)
    mine, theirs = used(simulated, 1, 3), used(simulated, 2, 4, vm=OTHER)
    simulated.done(ActivatePartition(mine))
    with FabricManager(simulated.host) as manager:  # by hand, and nobody noted it
        manager.activate(4)
    run_vm(simulated, mine)
    run_vm(simulated, theirs)
    begin(simulated, "fabric-restarted")
    simulated.done(RestorePartitions((mine,)))
    assert active(simulated) == {3: VM, 4: None}


def test_notes_of_what_is_not_active_any_more_are_forgotten(tmp_path: Path) -> None:
    simulated = machine(tmp_path)
    pair, single = used(simulated, 1, 3), used(simulated, 1)
    simulated.done(ActivatePartition(pair))
    simulated.reboot()
    simulated.done(ActivatePartition(single))  # the VM is smaller since
    run_vm(simulated, single)
    begin(simulated, "fabric-restarted")
    simulated.done(RestorePartitions((single,)))
    assert active(simulated) == {7: VM}
    end(simulated.files, set())
    simulated.done(DeactivatePartition(single))
    with FabricManager(simulated.host) as manager:  # by hand, after the VM
        manager.activate(7)
    assert active(simulated) == {7: None}
    assert not simulated.done(DeactivatePartition(single))
    simulated.done(BindDriver(single.gpus, None))
    assert not simulated.done(ActivatePartition(single))  # somebody else's serves it, and stays theirs
    assert active(simulated) == {7: None}


def test_a_stray_of_another_store_is_spared_while_its_vm_may_start(tmp_path: Path) -> None:
    simulated = machine(tmp_path)
    first = used(simulated, 1, 3)
    simulated.done(ActivatePartition(first))
    [noted] = fabric_notes.noted_partitions(simulated.host)
    assert not simulated.done(DeactivatePartition(first, least_age_s=120.0))
    assert not simulated.done(DeactivatePartition(first, activated_at=noted.since - 1))
    simulated.host.wait(121)
    assert simulated.done(DeactivatePartition(first, activated_at=noted.since, least_age_s=120.0))


def test_a_partition_of_gpus_that_its_vm_does_not_have_is_not_restored(tmp_path: Path) -> None:
    simulated = machine(tmp_path)
    single = used(simulated, 1)
    simulated.done(ActivatePartition(single))
    run_vm(simulated, single)
    assert simulated.refused(RestorePartitions((used(simulated, 1, 3),))).code == ProblemCode.HOLDERS_UNKNOWN
    assert active(simulated) == {7: VM}


def test_one_that_died_is_started_under_vms_and_told_their_partitions(tmp_path: Path) -> None:
    simulated = machine(tmp_path)
    pair = used(simulated, 1, 3)
    simulated.done(ActivatePartition(pair))
    run_vm(simulated, pair)
    begin(simulated, "fabric-dead")
    assert simulated.done(RestartFabricManager())
    assert active(simulated) == {3: VM}
