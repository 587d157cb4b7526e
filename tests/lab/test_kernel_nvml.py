# SPDX-License-Identifier: Apache-2.0
"""One truth in the emulated host: what nvidia-smi, pynvml, sysfs or sriov-manage does, the others see at once.

The module is loaded with a table of other boards, of four VFs each, and afterwards with the host's own.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

import vgpuctl_lab as lab
from tests.lab.kernel_cards import DEVICES, SRIOV_MANAGE
from tests.lab_fixtures import KernelHost
from vgpuctl.hosts.pynvml_excerpt import excerpt
from vgpuctl_lab.card_table import card_table

_IN_HOST = Path(__file__).with_name("nvml_in_host.py").read_text()
_PYNVML = Path(pynvml.__file__).read_text()
_LOAD = "set -e; rmmod vgpulab; insmod /run/lab/vgpulab.ko; cat {} >/proc/vgpulab/cards"
_A100, _A40 = "0000:01:00.0", "0000:02:00.0"
_IN_USE = 19

Ask = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def ask(kernel_host: KernelHost) -> Iterator[Ask]:
    """Run operations of nvml_in_host.py, all in one round trip, on a host with an A100 40 GB and an A40."""
    kernel_host.restore_pristine()
    table = re.sub(r" vfs=\d+ ", " vfs=4 ", card_table(lab.parse_host("gpu1=a100-40,a40:vf-profile")))
    code, output, errors = kernel_host.run(
        f"cat >/tmp/nvml-boards <<'END'\n{table}END\n{_LOAD.format('/tmp/nvml-boards')}"
    )
    assert code == 0, output + errors

    def run(*operations: list[Any]) -> list[Any]:
        text = json.dumps(operations)
        names = {*re.findall(r"\b(?:nvml|NVML|c_nvml)\w+", text), "nvmlInit", "nvmlShutdown"}
        program = excerpt(_PYNVML, names) + _IN_HOST
        code, output, errors = kernel_host.run(["python3", "-I", "-S", "-c", program, text])
        assert code == 0, errors
        answers: list[Any] = json.loads(output.splitlines()[-1])
        return answers

    yield run
    code, output, errors = kernel_host.run(
        f"{SRIOV_MANAGE} -d {_A100}; {SRIOV_MANAGE} -d {_A40}; {_LOAD.format('/run/lab/cards')}"
    )
    assert code == 0, output + errors


def test_mig_from_mode_to_vgpu_is_one_truth(ask: Ask) -> None:
    """Reference 3.1, 5.1 to 5.3: each step by another tool than the one that looks."""
    vf = f"{DEVICES}/0000:01:00.1/nvidia"
    answers = ask(
        ["keep", "gpu", f'nvmlDeviceGetHandleByPciBusId("{_A100}")'],
        ["smi", "-i", "0", "-mig", "1"],
        ["nvml", "nvmlDeviceGetMigMode(gpu)"],
        ["closed", "nvidia-smi", "--gpu-reset", "-i", "0"],
        ["nvml", "nvmlDeviceGetMigMode(gpu)"],
        ["program", SRIOV_MANAGE, "-e", _A100],
        ["closed", SRIOV_MANAGE, "-e", _A100],
        ["smi", "-i", "0", "-mig", "0"],
        ["creatable", f"{vf}/creatable_vgpu_types"],
        ["smi", "mig", "-i", "0", "-cgi", "3g.20gb,19", "-C"],
        ["nvml", "[nvmlGpuInstanceGetInfo(nvmlDeviceGetGpuInstanceById(gpu, one)).placement.start for one in (2, 7)]"],
        ["nvml", "nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 19)"],
        ["nvml", "nvmlDeviceGetUUID(nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0))"],
        ["smi", "-L"],
        ["creatable", f"{vf}/creatable_vgpu_types"],
        ["nvml", "nvmlDeviceGetCreatableVgpus(gpu)"],
        ["nvml", "nvmlGpuInstanceDestroy(nvmlDeviceGetGpuInstanceById(gpu, 2))"],
        ["smi", "mig", "-dci", "-gi", "2"],
        ["write", f"{vf}/current_vgpu_type", "476"],
        ["smi", "mig", "-dgi", "-gi", "2"],
        ["write", f"{vf}/current_vgpu_type", "0"],
        ["nvml", "nvmlGpuInstanceDestroy(nvmlDeviceGetGpuInstanceById(gpu, 2))"],
        ["smi", "mig", "-lgi"],
        ["closed", SRIOV_MANAGE, "-d", _A100],
        ["smi", "mig", "-lgi"],
        ["closed", "nvidia-smi", "-i", "0", "-mig", "0"],
        ["nvml", "nvmlDeviceCreateGpuInstance(gpu, 19)"],
    )
    pending, mode, reset, mode_after, busy, enabling, disabling, none = answers[1:9]
    assert pending[1].startswith(
        "Warning: MIG mode is in pending enable state for GPU 00000000:01:00.0:In use by another"
    )
    assert mode == [0, 1], "pynvml is the other client"
    assert reset == [0, "GPU 00000000:01:00.0 was successfully reset.\nAll done.\n"]
    assert mode_after == [1, 1]
    assert f"Cannot obtain unbindLock for {_A100}" in busy[1], "NVML is open"
    assert enabling == [0, f"Enabling VFs on {_A100}\n"]
    assert disabling[0] == _IN_USE, "VFs are enabled"
    assert none == [], "no instance, no type"
    created, starts, remaining, uuid, listed, in_sysfs, in_nvml = answers[9:16]
    assert created[1].splitlines() == [
        "Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.20gb (ID  9)",
        "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  2 using profile MIG 3g.20gb (ID  2)",
        "Successfully created GPU instance ID  7 on GPU  0 using profile MIG 1g.5gb (ID 19)",
        "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  7 using profile MIG 1g.5gb (ID  0)",
    ]
    assert starts == [4, 0]
    assert remaining == 3
    assert f"  MIG 1g.5gb      Device  0: (UUID: {uuid})" in listed[1]
    assert sorted(in_sysfs) == sorted(in_nvml) == [474, 476]
    with_compute, emptied, created_vgpu, with_vgpu, deleted, destroyed, one_left = answers[16:23]
    assert with_compute == _IN_USE
    assert emptied[0] == 0
    assert (created_vgpu, deleted) == ("ok", "ok")
    assert with_vgpu[0] == _IN_USE
    assert destroyed == 0
    assert [line[:25] for line in one_left[1].splitlines() if "MIG" in line] == ["|   0  MIG 1g.5gb        "]
    wiped, gone, off, refused = answers[23:]
    assert wiped[0] == 0
    assert gone == [6, "No MIG devices found\n"], "sriov-manage wipes instances"
    assert off == [0, "Disabled MIG Mode for GPU 00000000:01:00.0\nAll done.\n"]
    assert refused == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_mixed_sizes_and_a_running_vm_are_one_truth(ask: Ask) -> None:
    """Reference 2.2, 3.3, 3.4, 6.1."""
    uuid = "f2670f5b-5f52-4a2e-9a0a-111111111111"
    first, second = (f"{DEVICES}/0000:02:00.{number}/nvidia" for number in (1, 2))
    answers = ask(
        ["keep", "gpu", f'nvmlDeviceGetHandleByPciBusId("{_A40}")'],
        ["closed", SRIOV_MANAGE, "-e", _A40],
        ["smi", "vgpu", "-i", "1", "-shm", "1"],
        ["nvml", "nvmlDeviceGetVgpuHeterogeneousMode(gpu)"],
        ["write", f"{first}/current_vgpu_type", "562"],
        ["write", f"{second}/current_vgpu_type", "565"],
        ["read", f"{second}/placement_id"],
        ["nvml", "(lambda one: one.placementIds[:one.count])(nvmlDeviceGetVgpuTypeCreatablePlacements(gpu, 562))"],
        ["creatable", f"{DEVICES}/0000:02:00.3/nvidia/creatable_vgpu_types"],
        ["nvml", "nvmlDeviceGetCreatableVgpus(gpu)"],
        ["nvml", "nvmlDeviceGetActiveVgpus(gpu)"],
        ["start_vm", "0000:02:00.1", "acme.web-1", uuid],
        ["keep", "vgpu", "nvmlDeviceGetActiveVgpus(gpu)[0]"],
        ["nvml", "nvmlVgpuInstanceGetVmID(vgpu)[0]"],
        ["nvml", "nvmlDeviceGetMemoryInfo(gpu, version=nvmlMemory_v2).used >> 20"],
        ["smi", "vgpu", "-q"],
        ["nvml", "nvmlDeviceSetVgpuSchedulerState(gpu, c_nvmlVgpuSchedulerSetState_t(2))"],
        ["keep", "moved", "nvmlVgpuInstanceGetMetadata(vgpu)"],
        ["keep", "other", f'nvmlDeviceGetVgpuMetadata(nvmlDeviceGetHandleByPciBusId("{_A100}"))'],
        ["keep", "told", "lambda one: [one.vgpuVmCompatibility, one.compatibilityLimitCode]"],
        ["nvml", "told(nvmlGetVgpuCompatibility(moved, nvmlDeviceGetVgpuMetadata(gpu)))"],
        ["nvml", "told(nvmlGetVgpuCompatibility(moved, other))"],
        ["nvml", "nvmlVgpuInstanceGetRuntimeStateSize(vgpu).size >> 20"],
        ["write", "/proc/vgpulab/control", f"fault {_A40} move-state 64"],
        ["write", "/proc/vgpulab/control", f"fault {_A40} move-unsupported 1"],
        ["nvml", "nvmlVgpuInstanceGetRuntimeStateSize(vgpu).size >> 20"],
        ["nvml", "told(nvmlGetVgpuCompatibility(moved, nvmlDeviceGetVgpuMetadata(gpu)))"],
        ["nvml", "nvmlDeviceGetVgpuMetadata(gpu).pgpuVirtualizationCaps"],
        ["write", "/proc/vgpulab/control", f"fault {_A40} move-state 0"],
        ["write", "/proc/vgpulab/control", f"fault {_A40} move-unsupported 0"],
        ["stop_vm", "acme.web-1"],
        ["nvml", "nvmlDeviceGetActiveVgpus(gpu)"],
        ["smi", "vgpu", "-i", "1", "-shm", "0"],
        ["nvml", "nvmlDeviceSetVgpuSchedulerState(gpu, c_nvmlVgpuSchedulerSetState_t(2))"],
        ["smi", "vgpu", "-i", "1", "-ss"],
        ["closed", SRIOV_MANAGE, "-d", _A40],
        ["nvml", "nvmlDeviceGetVgpuHeterogeneousMode(gpu)"],
    )
    assert answers[2] == [0, "Enabled vGPU heterogeneous mode for GPU 00000000:02:00.0\n"]
    assert answers[3:6] == [1, "ok", "ok"]
    placement, creatable, in_sysfs, in_nvml, active = answers[6:11]
    assert int(placement) in (0, 24)
    assert 0 < len(creatable) < 4
    assert sorted(in_sysfs) == sorted(in_nvml)
    assert 566 not in in_nvml, "no room for the whole GPU"
    assert active == [], "a vGPU is active while its VM runs"
    started, _, vm, used, described, scheduler = answers[11:17]
    assert answers[20:23] == [[0xF, 0], [0x1, 0x4], 8192], "to an equal GPU live, to another one cold"
    assert answers[25:28] == [64, [0xF, 0], 0], "faults of moves, as the kernel module has them"
    stopped, inactive = answers[30:32]
    assert (started, stopped) == ("open", 0)
    assert vm == uuid
    assert used == 8192
    assert re.search(rf"VM UUID +: {uuid}\n +VM Name +: acme.web-1\n +vGPU Name +: NVIDIA A40-8Q\n", described[1])
    assert scheduler == _IN_USE, "a VM runs"
    assert inactive == []
    assert answers[32][0] == _IN_USE, "vGPUs exist"
    assert answers[33] == pynvml.NVML_SUCCESS
    assert re.search(r"Scheduler Policy +: Equal Share\n", answers[34][1])
    assert answers[36] == 0, "sriov-manage resets mixed-size mode"


def test_faults_reach_every_tool(ask: Ask) -> None:
    """Reference 5.4: ECC errors are counted; a GPU that fell off the bus is lost, and back when the fault ends."""
    control = "/proc/vgpulab/control"
    answers = ask(
        ["keep", "gpu", f'nvmlDeviceGetHandleByPciBusId("{_A40}")'],
        ["write", control, f"fault {_A40} ecc 3"],
        ["nvml", "nvmlDeviceGetTotalEccErrors(gpu, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC)"],
        ["write", control, f"fault {_A40} fallen 1"],
        ["nvml", "nvmlDeviceGetName(gpu)"],
        ["smi", "-L"],
        ["write", control, f"fault {_A40} fallen 0"],
        ["smi", "-i", "1", "--query-gpu=name,ecc.mode.current", "--format=csv,noheader"],
    )
    assert answers[2] == 3
    assert answers[4] == pynvml.NVML_ERROR_GPU_IS_LOST
    assert "Unable to determine the device handle for gpu 1: GPU is lost" in answers[5][1]
    assert answers[7] == [0, "NVIDIA A40, Enabled\n"]


def test_settings_of_a_card_by_pynvml_are_what_nvidia_smi_shows(ask: Ask) -> None:
    """The power limit counts at once; a reset commits ECC and forgets the rest."""
    fields = "power.limit,ecc.mode.current,ecc.mode.pending,compute_mode"
    query = ["smi", "-i", "1", f"--query-gpu={fields}", "--format=csv,noheader"]
    answers = ask(
        ["keep", "gpu", f'nvmlDeviceGetHandleByPciBusId("{_A40}")'],
        ["nvml", "nvmlDeviceSetPowerManagementLimit(gpu, 200000)"],
        ["nvml", "nvmlDeviceSetPowerManagementLimit(gpu, 900000)"],
        ["nvml", "nvmlDeviceSetGpuLockedClocks(gpu, 1200, 1695)"],
        ["nvml", "nvmlDeviceGetClockInfo(gpu, NVML_CLOCK_SM)"],
        ["nvml", "nvmlDeviceSetComputeMode(gpu, 3)"],
        ["nvml", "nvmlDeviceSetEccMode(gpu, 0)"],
        query,
        ["closed", "nvidia-smi", "--gpu-reset", "-i", "1"],
        query,
        ["nvml", "nvmlDeviceGetClockInfo(gpu, NVML_CLOCK_SM)"],
        ["nvml", "nvmlDeviceSetEccMode(gpu, 1)"],
        ["closed", "nvidia-smi", "--gpu-reset", "-i", "1"],
    )
    assert answers[2] == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert answers[4] == 1200
    assert answers[7] == [0, "200.00 W, Enabled, Disabled, Exclusive_Process\n"]
    assert answers[9] == [0, "300.00 W, Disabled, Disabled, Default\n"]
    assert answers[10] == 210
