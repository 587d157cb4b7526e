# SPDX-License-Identifier: Apache-2.0
"""Mixed sizes and the vGPU scheduler: done, done again, refused (reference 3.3, 3.4)."""

from pathlib import Path

import pytest

from tests.agent.simulated import PF, VM, Machine
from vgpuctl.agent.wire.facts import SchedulerFacts
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import (
    CreateGpuInstance,
    SetHeterogeneousMode,
    SetMigMode,
    SetVgpuScheduler,
    SetVirtualFunctions,
    Step,
)
from vgpuctl_lab.simulated.machine.domains import HostDevice, start

L40S, RTX = "l40s", "rtx-pro-6000-blackwell-server"
MIXED = SetHeterogeneousMode(PF, True)
EQUAL_SHARE = SetVgpuScheduler(PF, "equal-share", 3000)
MIG = (SetMigMode(PF, True), SetVirtualFunctions(PF, 48), CreateGpuInstance(PF, "1g.24gb+gfx", 3))

STEPS: dict[str, tuple[str, tuple[Step, ...], Step]] = {
    "mixed": (L40S, (), MIXED),
    "equal": (L40S, (MIXED,), SetHeterogeneousMode(PF, False)),
    "mixed-in-an-instance": (RTX, MIG, SetHeterogeneousMode(PF, True, 3)),
    "scheduler": (L40S, (), SetVgpuScheduler(PF, "fixed-share")),
    "scheduler-slice": (L40S, (), EQUAL_SHARE),
    "scheduler-back": (L40S, (EQUAL_SHARE,), SetVgpuScheduler(PF, "equal-share")),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_second_run_writes_nothing_and_a_dry_run_foresees_the_first(name: str, tmp_path: Path) -> None:
    board, before, step = STEPS[name]
    machine = Machine(tmp_path, board, with_vfs=board == L40S)
    if before:
        machine.done(*before)
    dry = machine.take(step, dry_run=True)
    first = machine.take(step)
    assert first.problem is None
    assert first.changes[0].changed
    assert dry.changes == first.changes
    second = machine.take(step)
    assert not second.changes[0].changed
    assert second.writes == first.writes


def test_mixed_sizes_let_places_decide(tmp_path: Path) -> None:
    machine = Machine(tmp_path, L40S, with_vfs=True)
    machine.done(MIXED)
    assert machine.gpu().heterogeneous is True
    assert machine.creatable("L40S-8Q", "L40S-16Q", "L40S-24Q", "L40S-48Q") == [4, 2, 2, 1]
    vfs = [vf.address for vf in machine.gpu().vfs]
    machine.done(SetVfProfile(vfs[0], machine.type_id("L40S-16Q")), SetVfProfile(vfs[1], machine.type_id("L40S-8Q")))
    assert machine.host.read(f"/sys/bus/pci/devices/{vfs[1]}/nvidia/placement_id") == "16"
    assert machine.creatable("L40S-8Q", "L40S-16Q", "L40S-24Q", "L40S-48Q") == [2, 1, 1, 0]
    refused = machine.refused(SetVfProfile(vfs[2], machine.type_id("L40S-48Q")))
    assert (refused.code, refused.rm_code) == ("vgpu-refused", "0x1a")


def test_mixed_sizes_are_refused_over_vgpus_and_lost_with_the_vfs(tmp_path: Path) -> None:
    machine = Machine(tmp_path, L40S, with_vfs=True)
    vf = machine.gpu().vfs[0].address
    machine.done(SetVfProfile(vf, machine.type_id("L40S-8Q")))
    refused = machine.refused(MIXED)
    assert refused.code == "vgpus-active"
    assert vf in refused.message
    machine.done(SetVfProfile(vf, "0"), MIXED)
    machine.done(SetVirtualFunctions(PF, 0))
    assert machine.gpu().heterogeneous is False


def test_a_gpu_or_instance_without_mixed_sizes_says_so(tmp_path: Path) -> None:
    assert Machine(tmp_path / "t4", "t4").refused(MIXED).code == "no-heterogeneous-mode"
    machine = Machine(tmp_path / "rtx", RTX)
    machine.done(*MIG)
    assert machine.refused(MIXED).code == "no-heterogeneous-mode"
    assert machine.refused(SetHeterogeneousMode(PF, True, 0)).code == "mig-instance-missing"


def test_sizes_mix_inside_an_instance(tmp_path: Path) -> None:
    machine = Machine(tmp_path, RTX)
    machine.done(*MIG, SetHeterogeneousMode(PF, True, 3))
    mig = machine.gpu().mig
    assert mig is not None and mig.instances[0].heterogeneous is True
    vfs = [vf.address for vf in machine.gpu().vfs]
    machine.done(SetVfProfile(vfs[0], machine.type_id("DC-1-8Q")), SetVfProfile(vfs[1], machine.type_id("DC-1-12Q")))
    assert machine.refused(SetHeterogeneousMode(PF, False, 3)).code == "vgpus-active"


def test_the_scheduler_is_read_back_with_its_slice(tmp_path: Path) -> None:
    machine = Machine(tmp_path, L40S, with_vfs=True)
    assert machine.gpu().scheduler == SchedulerFacts("best-effort")
    machine.done(EQUAL_SHARE)
    assert machine.gpu().scheduler == SchedulerFacts("equal-share", 3000)


def raw_slice_ns(machine: Machine) -> int:
    library = machine.host.nvml()
    library.nvmlInit()
    state = library.nvmlDeviceGetVgpuSchedulerState(library.nvmlDeviceGetHandleByPciBusId(PF))
    return int(state.schedulerParams.vgpuSchedData.timeslice)


def start_vm(machine: Machine) -> None:
    vf = machine.gpu().vfs[0].address
    machine.done(SetVfProfile(vf, machine.type_id("L40S-8Q")))
    start(machine.files, VM, "web", [HostDevice(function=vf)])


def test_a_time_slice_that_nvml_tells_only_while_a_vm_runs_is_known_before(tmp_path: Path) -> None:
    machine = Machine(tmp_path, L40S, with_vfs=True)
    assert machine.done(EQUAL_SHARE)
    assert raw_slice_ns(machine) == 0
    assert not machine.done(EQUAL_SHARE)
    assert machine.done(SetVgpuScheduler(PF, "equal-share", 4000))
    start_vm(machine)
    assert raw_slice_ns(machine) == 4_000_000
    assert machine.gpu().scheduler == SchedulerFacts("equal-share", 4000)


def test_a_default_slice_that_reads_back_as_a_number_is_no_difference(tmp_path: Path) -> None:
    machine = Machine(tmp_path, L40S, with_vfs=True)
    step = SetVgpuScheduler(PF, "fixed-share")
    machine.done(step)
    start_vm(machine)
    with machine.files.change() as state:
        state.schedulers[PF].arr = 1
    assert raw_slice_ns(machine) == 2_000_000
    assert machine.gpu().scheduler == SchedulerFacts("fixed-share")
    assert not machine.done(step)


def test_a_slice_that_somebody_else_set_is_read_once_nvml_tells_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, L40S, with_vfs=True)
    machine.done(EQUAL_SHARE)
    with machine.files.change() as state:
        state.schedulers[PF].slice_ns = 5_000_000
    start_vm(machine)
    assert machine.gpu().scheduler == SchedulerFacts("equal-share", 5000)


def test_a_note_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    machine = Machine(tmp_path, L40S, with_vfs=True)
    machine.done(EQUAL_SHARE)
    (machine.files.root / "run/vgpuctl/schedulers.json").write_text("[")
    assert machine.gpu().scheduler == SchedulerFacts("equal-share")
    assert machine.done(EQUAL_SHARE)


def test_the_scheduler_waits_for_the_end_of_every_vm(tmp_path: Path) -> None:
    machine = Machine(tmp_path, L40S, with_vfs=True)
    vf = machine.gpu().vfs[0].address
    machine.done(SetVfProfile(vf, machine.type_id("L40S-8Q")))
    start(machine.files, VM, "web", [HostDevice(function=vf)])
    refused = machine.refused(EQUAL_SHARE)
    assert refused.code == "held"
    assert VM in refused.message


@pytest.mark.parametrize(
    ("board", "step", "code"),
    [
        (L40S, SetVgpuScheduler(PF, "fair"), "bad-policy"),
        (L40S, SetVgpuScheduler(PF, "equal-share", 99), "nvml-refused"),
        ("l40s/passthrough", EQUAL_SHARE, "no-vgpu-scheduler"),
    ],
)
def test_a_scheduler_that_cannot_be_is_refused(board: str, step: Step, code: str, tmp_path: Path) -> None:
    assert Machine(tmp_path, board, with_vfs=True).refused(step).code == code


def test_fixed_share_and_mixed_sizes_exclude_each_other(tmp_path: Path) -> None:
    machine = Machine(tmp_path, L40S, with_vfs=True)
    machine.done(MIXED)
    assert machine.refused(SetVgpuScheduler(PF, "fixed-share")).code == "nvml-not-supported"
