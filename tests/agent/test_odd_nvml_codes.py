# SPDX-License-Identifier: Apache-2.0
"""An unexpected code hides only the part of a GPU that it is about."""

from pathlib import Path

import pytest

from tests.agent.simulated import PF, VM, Machine
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import CreateGpuInstance, SetMigMode, SetVirtualFunctions
from vgpuctl_lab.simulated.machine.domains import HostDevice, start
from vgpuctl_lab.simulated.machine.nvml import CODES

UNKNOWN, TIMEOUT, NOT_FOUND, NO_DATA = 999, 10, 6, 21


def inject(machine: Machine, **codes: int) -> None:
    path = machine.files.root / CODES.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name} {code}\n" for name, code in codes.items()))


def summary(gpu: Gpu) -> tuple[object, ...]:
    return gpu.address, gpu.driver, len(gpu.vfs), gpu.sharing


@pytest.mark.parametrize(
    ("function", "part"),
    [
        ("nvmlDeviceGetName", "its name"),
        ("nvmlDeviceGetUUID", "its UUID"),
        ("nvmlDeviceGetMemoryInfo", "its memory"),
        ("nvmlDeviceGetVgpuSchedulerState", "its vGPU scheduler"),
        ("nvmlDeviceGetSupportedVgpus", "its vGPU types"),
        ("nvmlVgpuTypeGetFramebufferSize", "the vGPU type "),
        ("nvmlVgpuTypeGetMaxInstances", "the vGPU type "),
    ],
)
@pytest.mark.parametrize("code", [UNKNOWN, TIMEOUT, NOT_FOUND])
def test_a_part_that_only_informs_is_noted_and_the_gpu_stays_usable(
    function: str, part: str, code: int, tmp_path: Path
) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    before = machine.gpu()
    inject(machine, **{function: code})
    gpu = machine.gpu()
    assert summary(gpu) == summary(before)
    assert gpu.problems == ()
    assert any(f"NVML does not tell {part}" in one and f"(NVML {code})" in one for one in gpu.unread)
    assert {one.name for one in gpu.types} == {one.name for one in before.types}


@pytest.mark.parametrize("code", [UNKNOWN, NO_DATA])
@pytest.mark.parametrize(
    ("function", "part"),
    [("nvmlDeviceGetMigMode", "its MIG mode"), ("nvmlDeviceGetVgpuHeterogeneousMode", "its size mode")],
)
def test_a_part_that_placing_needs_is_a_problem_of_the_gpu(function: str, part: str, code: int, tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    before = machine.gpu()
    inject(machine, **{function: code})
    gpu = machine.gpu()
    assert summary(gpu) == summary(before)
    assert (gpu.name, gpu.uuid, gpu.memory_mib) == (before.name, before.uuid, before.memory_mib)
    assert any(f"NVML does not tell {part}" in one for one in gpu.problems)


def test_a_vgpu_that_ends_while_it_is_read_is_no_problem(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a100-pcie-40gb")
    machine.done(
        SetMigMode(PF, True), SetVirtualFunctions(PF, machine.card.total_vfs), CreateGpuInstance(PF, "1g.5gb", 0)
    )
    vf = machine.gpu().vfs[0].address
    machine.done(SetVfProfile(vf, machine.type_id("A100-1-5C")))
    start(machine.files, VM, "web", [HostDevice(function=vf)])
    inject(machine, nvmlVgpuInstanceGetGpuInstanceId=NOT_FOUND)
    gpu = machine.gpu()
    assert (gpu.problems, gpu.unread) == ((), ())
    assert [one.profile for one in gpu.mig.instances] if gpu.mig else [] == ["1g.5gb"]
    inject(machine, nvmlVgpuInstanceGetGpuInstanceId=UNKNOWN)
    assert any("the GPU instances of its vGPUs" in one for one in machine.gpu().problems)


def test_profiles_that_do_not_answer_keep_the_mig_mode(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a100-pcie-40gb")
    machine.done(SetMigMode(PF, True))
    inject(machine, nvmlDeviceGetGpuInstanceProfileInfo=UNKNOWN)
    gpu = machine.gpu()
    assert (gpu.mig_mode, gpu.uuid) == ("enabled", machine.card.uuid)
    assert any("the GPU instance profile" in one for one in gpu.problems)
