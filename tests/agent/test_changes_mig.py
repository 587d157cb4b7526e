# SPDX-License-Identifier: Apache-2.0
"""MIG mode, reset, GPU instances: done, done again, refused (reference 5)."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.agent.simulated import PF, VM, Machine
from tests.unit.lab.mig_card import all_layouts
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import (
    BindDriver,
    CreateGpuInstance,
    DestroyGpuInstance,
    ResetGpu,
    SetMigMode,
    SetServiceActive,
    SetVirtualFunctions,
    Step,
)
from vgpuctl.model.layout import WantedInstance
from vgpuctl.planner.mig_geometry import GeometryPlan, plan_geometry, table_of
from vgpuctl_lab.simulated.machine.domains import HostDevice, end, start
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost
from vgpuctl_lab.simulated.machine.nvml import SimulatedNvml
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, InstanceHandle, NvmlError

A100, H100, RTX = "a100-pcie-40gb", "h100-pcie", "rtx-pro-6000-blackwell-server"
ON, OFF = SetMigMode(PF, True), SetMigMode(PF, False)
WATCHED = SetServiceActive("nvidia-dcgm.service", True)
UNWATCHED = SetServiceActive("nvidia-dcgm.service", False)

# (steps before, the step): what must be true of every step.
STEPS: dict[str, tuple[tuple[Step, ...], Step]] = {
    "mode": ((), ON),
    "mode-off": ((ON,), OFF),
    "reset": ((WATCHED,), ResetGpu(PF)),
    "create-at": ((ON,), CreateGpuInstance(PF, "3g.20gb", 4)),
    "create-with-compute": ((ON,), CreateGpuInstance(PF, "2g.10gb", 2, compute_instance=True)),
    "fill-with-compute": (
        (ON, CreateGpuInstance(PF, "2g.10gb", 2)),
        CreateGpuInstance(PF, "2g.10gb", 2, compute_instance=True),
    ),
    "create-with-parts": ((ON,), CreateGpuInstance(PF, "4g.20gb", 0, compute=(2, 1, 1))),
    "other-parts": (
        (ON, CreateGpuInstance(PF, "3g.20gb", 4, compute_instance=True)),
        CreateGpuInstance(PF, "3g.20gb", 4, compute=(2, 1)),
    ),
    "create-count": ((ON, CreateGpuInstance(PF, "1g.5gb", 0)), CreateGpuInstance(PF, "1g.5gb", None, 3)),
    "destroy-at": ((ON, CreateGpuInstance(PF, "1g.5gb", 3)), DestroyGpuInstance(PF, "1g.5gb", 3)),
    "destroy-filled": (
        (ON, CreateGpuInstance(PF, "1g.5gb", 3, compute_instance=True)),
        DestroyGpuInstance(PF, "1g.5gb", 3),
    ),
    "destroy-count": ((ON, CreateGpuInstance(PF, "1g.5gb", None, 4)), DestroyGpuInstance(PF, "1g.5gb", None, 1)),
}


def prepared(folder: Path, name: str) -> tuple[Machine, Step]:
    machine = Machine(folder, A100)
    before, step = STEPS[name]
    if before:
        machine.done(*before)
    if name == "reset":
        assert machine.refused(ON).code == "mig-mode-pending"
        machine.done(UNWATCHED)
    return machine, step


@pytest.mark.parametrize("name", STEPS)
def test_a_second_run_writes_nothing_and_a_dry_run_foresees_the_first(name: str, tmp_path: Path) -> None:
    machine, step = prepared(tmp_path, name)
    before = machine.files.state()
    dry = machine.take(step, dry_run=True)
    assert machine.files.state() == before
    first = machine.take(step)
    assert first.problem is None
    assert first.changes[0].changed
    assert dry.changes == first.changes
    second = machine.take(step)
    assert not second.changes[0].changed
    assert second.writes == first.writes


def test_every_layout_of_a_board_is_set_read_and_left_for_the_next(tmp_path: Path) -> None:
    """The planner's way through all layouts of an A30, by the agent; the planner's own tests have every board."""
    machine = Machine(tmp_path, "a30")
    machine.done(ON)
    for layout in [*all_layouts("a30-24gb"), ()]:
        mig = machine.gpu().mig
        assert mig is not None
        table = table_of(mig, None, name="A30")
        assert table is not None
        wanted = [WantedInstance(name) for name, count in layout for _ in range(count)]
        plan = plan_geometry(table, wanted, mig.instances)
        assert isinstance(plan, GeometryPlan), plan
        gone: list[Step] = [DestroyGpuInstance(PF, one.profile, one.start) for one in plan.destroy]
        machine.done(ON, *gone, *(CreateGpuInstance(PF, one.profile, one.start) for one in plan.create))
        assert Counter(name.partition("@")[0] for name in machine.layout()) == dict(layout)


def test_parts_that_do_not_fit_leave_what_was_there(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A100)
    machine.done(ON, CreateGpuInstance(PF, "4g.20gb", 0, compute=(2, 1)))
    assert machine.refused(CreateGpuInstance(PF, "4g.20gb", 0, compute=(2, 2, 1))).code == "nvml-no-room"
    assert machine.refused(CreateGpuInstance(PF, "3g.20gb", 4, compute=(2, 2))).code == "nvml-no-room"
    mig = machine.gpu().mig
    assert mig is not None and [(one.profile, one.compute) for one in mig.instances] == [("4g.20gb", (2, 1))]


# The mode


def test_a_board_without_mig_says_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    for step in (ON, ResetGpu(PF), CreateGpuInstance(PF, "1g.5gb", 0), DestroyGpuInstance(PF, "1g.5gb", 0)):
        assert machine.refused(step).code == "no-mig"
    assert machine.gpu().mig is None


def test_a_host_without_nvml_says_so(tmp_path: Path) -> None:
    assert Machine(tmp_path, "flex-170").refused(ON).code == "nvml-missing"


def test_a_used_ampere_keeps_the_mode_pending_until_it_is_reset(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A100)
    machine.done(WATCHED)
    pending = machine.refused(ON)
    assert pending.code == "mig-mode-pending"
    assert "nv-hostengine (pid" in pending.message
    mig = machine.gpu().mig
    assert mig is not None and (mig.current, mig.pending) == (False, True)
    assert "becomes enabled at the next reset" in machine.gpu().problems[0]
    assert "nv-hostengine" in machine.refused(ResetGpu(PF)).message
    machine.done(UNWATCHED, ResetGpu(PF))
    mig = machine.gpu().mig
    assert mig is not None and (mig.current, mig.pending) == (True, True)


def test_a_pending_mode_can_be_called_off(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A100)
    machine.done(WATCHED)
    machine.take(ON)
    assert machine.done(OFF)
    assert not machine.done(OFF)


def test_a_used_hopper_refuses_the_mode(tmp_path: Path) -> None:
    machine = Machine(tmp_path, H100)
    machine.done(WATCHED)
    assert machine.refused(ON).code == "nvml-in-use"
    machine.done(UNWATCHED)
    assert machine.done(ON)


def test_mig_stays_on_over_vfs(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A100)
    machine.done(ON, SetVirtualFunctions(PF, machine.card.total_vfs))
    assert machine.refused(OFF).code == "vfs-active"
    assert machine.done(SetVirtualFunctions(PF, 0), OFF)


# Instances


class _OneIsSick(SimulatedNvml):
    """An NVML that does not answer for the GPU instance at slot 4."""

    def gpu_instance_get_info(self, handle: InstanceHandle) -> SimpleNamespace:
        if self.instance(self.state, handle).start == 4:
            raise NvmlError(CONSTANTS["NVML_ERROR_UNKNOWN"])
        return super().gpu_instance_get_info(handle)


class _SickHost(SimulatedHost):
    def nvml(self) -> SimulatedNvml:
        return _OneIsSick(self.machine)


def test_an_instance_that_does_not_answer_is_the_problem_of_its_card(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A100)
    machine.done(ON, CreateGpuInstance(PF, "3g.20gb", 0), CreateGpuInstance(PF, "3g.20gb", 4))
    machine.host = _SickHost(str(tmp_path))
    gpu = machine.gpu()
    assert gpu.uuid is not None and gpu.mig is not None
    assert [(one.profile, one.start) for one in gpu.mig.instances] == [("3g.20gb", 0)]
    assert "does not tell a GPU instance 3g.20gb" in gpu.unread[0] and gpu.problems and "passthrough" not in gpu.sharing
    for step in (DestroyGpuInstance(PF, "3g.20gb", 0), CreateGpuInstance(PF, "1g.5gb", 4)):
        assert machine.refused(step).code == "mig-unreadable"
    refused = machine.refused(BindDriver((PF,), "vfio-pci"))  # the kernel lists them, whatever NVML tells
    assert (refused.code, "gi" in refused.message) == ("mig-instances-active", True)


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (CreateGpuInstance(PF, "5g.7gb", 0), "mig-profile-unknown"),
        (CreateGpuInstance(PF, "3g.20gb", 2), "mig-bad-placement"),
        (CreateGpuInstance(PF, "3g.20gb", 0), "mig-placement-taken"),
        (CreateGpuInstance(PF, "1g.5gb", 1), "mig-placement-taken"),
        (CreateGpuInstance(PF, "7g.40gb", None), "nvml-no-room"),
        (CreateGpuInstance(PF, "1g.5gb", None, 9), "nvml-no-room"),
        (DestroyGpuInstance(PF, "1g.5gb", 0), "mig-instance-differs"),
    ],
)
def test_an_instance_that_cannot_be_is_refused_and_nothing_stays(step: Step, code: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, A100)
    machine.done(ON, CreateGpuInstance(PF, "2g.10gb", 0))
    assert machine.refused(step).code == code
    assert machine.layout() == ["2g.10gb@0"]


def test_instances_need_mig(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A100)
    assert machine.refused(CreateGpuInstance(PF, "1g.5gb", 0)).code == "mig-off"
    assert not machine.done(DestroyGpuInstance(PF, "1g.5gb", 0))


def test_profiles_and_placements_are_read_as_nvidia_smi_prints_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A100)
    mig = machine.gpu().mig
    assert mig is not None and mig.profiles == ()
    machine.done(ON)
    mig = machine.gpu().mig
    assert mig is not None
    found = {one.name: (one.profile_id, one.starts, one.size, one.max_count) for one in mig.profiles}
    assert found["1g.5gb"] == (19, (0, 1, 2, 3, 4, 5, 6), 1, 7)
    assert found["1g.10gb"] == (15, (0, 2, 4, 6), 2, 4)
    assert found["3g.20gb"] == (9, (0, 4), 4, 2)


def test_vfs_that_come_or_go_take_every_instance(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A100)
    machine.done(ON, CreateGpuInstance(PF, "1g.5gb", 0), SetVirtualFunctions(PF, machine.card.total_vfs))
    assert machine.layout() == []


def test_an_instance_with_a_vgpu_is_in_use_by_its_vm(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A100)
    machine.done(ON, SetVirtualFunctions(PF, machine.card.total_vfs), CreateGpuInstance(PF, "1g.5gb", 0))
    machine.done(CreateGpuInstance(PF, "1g.5gb", 1))
    assert machine.creatable("A100-1-5C", "A100-2-10C", "A100-4C") == [2, 0, 0]
    vf = machine.gpu().vfs[0].address
    machine.done(SetVfProfile(vf, machine.type_id("A100-1-5C")))
    assert machine.creatable("A100-1-5C") == [1]
    mig = machine.gpu().mig
    assert mig is not None and [one.in_use for one in mig.instances] == [True, False]
    idle = machine.refused(DestroyGpuInstance(PF, "1g.5gb", 0))
    assert idle.code == "mig-instance-in-use"
    start(machine.files, VM, "web", [HostDevice(function=vf)])
    mig = machine.gpu().mig
    assert mig is not None and [holder.vm_uuid for holder in mig.instances[0].holders] == [VM]
    assert "qemu-system-x86_64" in machine.refused(DestroyGpuInstance(PF, "1g.5gb", None)).message
    assert machine.done(DestroyGpuInstance(PF, "1g.5gb", None, 1))
    end(machine.files, set())
    assert machine.done(SetVfProfile(vf, "0"), DestroyGpuInstance(PF, "1g.5gb", 0))


def test_several_vgpus_of_one_size_share_an_instance(tmp_path: Path) -> None:
    machine = Machine(tmp_path, RTX)
    machine.done(ON, SetVirtualFunctions(PF, 48), CreateGpuInstance(PF, "1g.24gb+gfx", 3))
    assert machine.creatable("DC-1-8Q", "DC-1-12Q", "DC-1-24Q") == [3, 2, 1]
    vf = machine.gpu().vfs[0].address
    machine.done(SetVfProfile(vf, machine.type_id("DC-1-8Q")))
    assert machine.creatable("DC-1-8Q", "DC-1-12Q", "DC-1-24Q") == [2, 0, 0]


def test_a_dry_run_believes_in_the_mode_that_it_would_set(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A100)
    steps = (ON, SetVirtualFunctions(PF, machine.card.total_vfs), CreateGpuInstance(PF, "1g.5gb", 0))
    reply = machine.take(*steps, dry_run=True)
    assert reply.problem is None
    assert [change.changed for change in reply.changes] == [True, True, True]
    assert machine.refused(CreateGpuInstance(PF, "1g.5gb", 0), dry_run=True).code == "mig-off"


def test_a_gpu_that_fell_off_the_bus_is_unread_and_refuses(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A100)
    with machine.files.change() as state:
        state.faults[PF] = {"fallen": 1}
    assert machine.refused(ON).code == "nvml-gpu-lost"
    assert any("NVML does not show it" in problem for problem in machine.gpu().unread)
