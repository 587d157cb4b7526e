# SPDX-License-Identifier: Apache-2.0
"""The lab's NVML over files as the kernel module writes them; tests/lab/test_kernel_nvml.py has the real module.

Sections are those of the reference on host interfaces.
"""

import ctypes
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.lab.nvml_fixtures import ModuleDouble, module, nvml, nvml_library, vm_process
from vgpuctl_lab.builds import NVML_SOURCES

__all__ = ["module", "nvml", "nvml_library"]

CARDS = """\
card 0000:01:00.0 interface=vf-profile device=10de:2235 subsystem=10de:145a class=030200 revision=a1 framebuffer=49152 \
vfs=32 uuid=GPU-11111111-2222-5333-8444-555555555555 serial=1320021000001 architecture=ampere memory=46068 power=300 \
hetero=1 ecc=1 name=NVIDIA A40
type 558 framebuffer=2048 max=24 heads=4 frl=60 resolution=7680x4320 vdev=2235:14d8 class=Quadro \
license=Quadro-Virtual-DWS,5.0 name=NVIDIA A40-2Q
type 562 framebuffer=8192 max=6 heads=4 frl=60 resolution=7680x4320 vdev=2235:14dc class=Quadro \
license=Quadro-Virtual-DWS,5.0 name=NVIDIA A40-8Q
card 0000:02:00.0 interface=vf device=8086:56c0 subsystem=8086:56c0 class=038000 revision=08 framebuffer=16384 \
vfs=31 name=Intel Data Center GPU Flex 170
card 0001:c1:00.0 interface=vf-profile device=10de:20f1 subsystem=10de:145f class=030200 revision=a1 framebuffer=40960 \
vfs=16 uuid=GPU-99999999-2222-5333-8444-555555555555 architecture=ampere mig=1 mig_reset=1 slots=8 slices=7 \
name=NVIDIA A100-PCIE-40GB
type 476 framebuffer=20480 max=2 gi=9 per_gi=1 name=NVIDIA A100-3-20C
gi 19 slices=1 size=1 memory=4864 max=7 starts=0,1,2,3,4,5,6 me=0 base=7 nvml=0 sm=14 ce=1 dec=0 enc=0 jpeg=0 ofa=0 \
name=1g.5gb
gi 9 slices=3 size=4 memory=19968 max=2 starts=0,4 me=0 base=1 nvml=2 sm=42 ce=3 dec=2 enc=0 jpeg=0 ofa=0 name=3g.20gb
ci 0 slices=1 max=3 gi=9 starts=0,1,2 nvml=0 name=1c.3g.20gb
ci 2 slices=3 max=1 gi=9 starts=0 nvml=2 name=3g.20gb
"""
A40 = (
    "card 0000:01:00.0 driver=nvidia interface=vf-profile usage=0 unbind_lock=0 vgpus=0 framebuffer=49152"
    " hetero=0 sched_policy=1 sched_arr=0 sched_slice_us=2000 sched_frequency=480 fallen=0 ecc_errors=3\n"
)
FLEX = "card 0000:02:00.0 driver=xe interface=vf usage=0 unbind_lock=0\n"
A100 = "card 0001:c1:00.0 driver=nvidia interface=vf-profile usage=0 unbind_lock=0 mig=0 mig_pending=0 fallen=0\n"
MIG_ON = A100.replace("mig=0 mig_pending=0", "mig=1 mig_pending=1")
TWO_GIS = (
    "gi 0001:c1:00.0 id=2 profile=9 start=4 size=4 in_use=0 hetero=0\n"
    "gi 0001:c1:00.0 id=1 profile=9 start=0 size=4 in_use=0 hetero=0\n"
    "ci 0001:c1:00.0 gi=2 id=0 profile=2 start=0 size=3 in_use=0\n"
    "ci 0001:c1:00.0 gi=1 id=0 profile=0 start=0 size=1 in_use=0\n"
)
VGPU = (
    "vgpu 0000:01:00.0 function=0000:01:00.1 type=562 framebuffer=8192 placement=8 in_use=1 uuid=- id=7 gi=-"
    " vm_pid={pid}\n"
    "vgpu 0000:01:00.0 function=0000:01:00.2 type=562 framebuffer=8192 placement=0 in_use=0 uuid=- id=8 gi=- vm_pid=0\n"
)


@pytest.fixture
def opened(nvml: Any, module: ModuleDouble) -> Any:
    module.write(cards=CARDS, state=A40 + FLEX + A100)
    nvml.nvmlInit()
    return nvml


@pytest.fixture
def a40(opened: Any) -> Any:
    return opened.nvmlDeviceGetHandleByIndex(0)


@pytest.fixture
def a100(opened: Any, module: ModuleDouble) -> Any:
    module.write(state=A40 + FLEX + MIG_ON + TWO_GIS)
    return opened.nvmlDeviceGetHandleByIndex(1)


def refusal(function: Any, *arguments: object) -> int:
    """NVML's code."""
    with pytest.raises(pynvml.NVMLError) as caught:
        function(*arguments)
    code: int = caught.value.value
    return code


def test_the_layout_of_each_structure_is_pynvmls(tmp_path: Path) -> None:
    header = (NVML_SOURCES / "nvml.h").read_text()
    names = re.findall(r"^} (nvml\w+);", header, re.MULTILINE)
    ours = {
        "nvmlPlacement_t": "nvmlGpuInstancePlacement_t",
        "nvmlDeviceAttributes_t": "nvmlDeviceAttributes",
        "nvmlGpuInstanceProfileInfo_v3_t": None,
        "nvmlReturn_t": None,
        # pynvml has room for an opaque part of its own choice behind the four bytes of nvml.h.
        "nvmlVgpuMetadata_t": None,
        "nvmlVgpuPgpuMetadata_t": None,
    }
    program = "".join(f'printf("{name} %zu\\n", sizeof({name}));' for name in names)
    source = tmp_path / "sizes.c"
    source.write_text(f'#include <stdio.h>\n#include "nvml.h"\nint main(void) {{ {program} return 0; }}\n')
    subprocess.run(["cc", "-I", NVML_SOURCES, "-o", tmp_path / "sizes", source], check=True, timeout=60)
    sizes = subprocess.run([tmp_path / "sizes"], check=True, capture_output=True, text=True, timeout=10).stdout
    compared = 0
    for line in sizes.splitlines():
        name, size = line.split()
        theirs = ours.get(name, name)
        if theirs is None:
            continue
        layout = getattr(pynvml, f"c_{theirs}", None) or getattr(pynvml, theirs)
        assert ctypes.sizeof(layout) == int(size), name
        compared += 1
    assert compared > 35


def test_without_the_kernel_module_the_driver_is_not_loaded(nvml: Any) -> None:
    assert refusal(nvml.nvmlInit) == nvml.NVML_ERROR_DRIVER_NOT_LOADED


def test_a_call_before_init_is_refused(nvml: Any, module: ModuleDouble) -> None:
    module.write(cards=CARDS, state=A40)
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    assert refusal(nvml.nvmlDeviceGetCount) == nvml.NVML_ERROR_UNINITIALIZED


def test_the_system_tells_the_drivers_version(opened: Any) -> None:
    assert opened.nvmlSystemGetDriverVersion() == "550.127.06"
    assert opened.nvmlSystemGetNVMLVersion() == "12.550.127.06"
    assert opened.nvmlErrorString(19) == "In use by another client"


def test_the_gpus_are_nvidias_and_found_by_every_name(opened: Any) -> None:
    assert opened.nvmlDeviceGetCount() == 2
    device = opened.nvmlDeviceGetHandleByIndex(1)
    assert opened.nvmlDeviceGetName(device) == "NVIDIA A100-PCIE-40GB"
    uuid = opened.nvmlDeviceGetUUID(device)
    info = opened.nvmlDeviceGetPciInfo(device)
    assert (info.busId, info.busIdLegacy) == ("00000001:C1:00.0", "0001:C1:00.0")
    assert (hex(info.pciDeviceId), hex(info.pciSubSystemId)) == ("0x20f110de", "0x145f10de")
    for found in (
        opened.nvmlDeviceGetHandleByUUID(uuid),
        opened.nvmlDeviceGetHandleByPciBusId("00000001:C1:00.0"),
        opened.nvmlDeviceGetHandleByPciBusId("0001:c1:00.0"),
    ):
        assert opened.nvmlDeviceGetIndex(found) == 1
        assert opened.nvmlDeviceGetMinorNumber(found) == 1
    serial = opened.nvmlDeviceGetHandleBySerial("1320021000001")
    assert opened.nvmlDeviceGetIndex(serial) == 0
    assert refusal(opened.nvmlDeviceGetHandleByUUID, "GPU-none") == opened.NVML_ERROR_NOT_FOUND
    assert refusal(opened.nvmlDeviceGetHandleByIndex, 2) == opened.NVML_ERROR_INVALID_ARGUMENT


def test_a_gpu_that_fell_off_the_bus_is_lost_and_the_others_answer(opened: Any, a40: Any, module: ModuleDouble) -> None:
    module.write(state=A40.replace("fallen=0", "fallen=1") + A100)
    assert refusal(opened.nvmlDeviceGetName, a40) == opened.NVML_ERROR_GPU_IS_LOST
    assert refusal(opened.nvmlDeviceGetHandleByIndex, 0) == opened.NVML_ERROR_GPU_IS_LOST
    assert opened.nvmlDeviceGetName(opened.nvmlDeviceGetHandleByIndex(1)) == "NVIDIA A100-PCIE-40GB"


def test_a_gpu_on_another_driver_is_not_counted(nvml: Any, module: ModuleDouble) -> None:
    module.write(cards=CARDS, state=A40.replace("driver=nvidia", "driver=-") + A100)
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 1
    assert nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByIndex(0)) == 1


def test_memory_power_and_errors_are_read(opened: Any, a40: Any, module: ModuleDouble) -> None:
    first = opened.nvmlDeviceGetMemoryInfo(a40)
    assert first.total == 46068 << 20
    assert first.used + first.free == first.total
    module.write(state=A40 + VGPU.format(pid=1))
    second = opened.nvmlDeviceGetMemoryInfo(a40, version=opened.nvmlMemory_v2)
    assert second.used == 8192 << 20, "framebuffer is handed out when a VM starts"
    assert second.reserved + second.used + second.free == second.total
    assert opened.nvmlDeviceGetPowerManagementLimit(a40) == 300_000
    assert opened.nvmlDeviceGetPowerUsage(a40) < 300_000
    assert opened.nvmlDeviceGetTemperature(a40, opened.NVML_TEMPERATURE_GPU) > 0
    assert opened.nvmlDeviceGetEccMode(a40) == [1, 1]
    uncorrected = opened.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    assert opened.nvmlDeviceGetTotalEccErrors(a40, uncorrected, opened.NVML_VOLATILE_ECC) == 3
    assert opened.nvmlDeviceGetArchitecture(a40) == opened.NVML_DEVICE_ARCH_AMPERE


def test_processes_are_those_that_have_the_node_open_but_for_the_asker(
    opened: Any, a40: Any, module: ModuleDouble
) -> None:
    module.write(state=A40 + f"process 0000:01:00.0 pid=4123 gi=-\nprocess 0000:01:00.0 pid={os.getpid()} gi=-\n")
    assert [one.pid for one in opened.nvmlDeviceGetComputeRunningProcesses(a40)] == [4123]
    module.write(state=A40 + VGPU.format(pid=77))
    [process] = opened.nvmlDeviceGetGraphicsRunningProcesses(a40)
    assert (process.pid, process.usedGpuMemory) == (77, 8192 << 20)


def test_a_call_that_the_library_lacks_is_function_not_found(opened: Any, a40: Any) -> None:
    assert refusal(opened.nvmlDeviceGetFanSpeed, a40) == opened.NVML_ERROR_FUNCTION_NOT_FOUND


def test_a_type_is_what_the_table_says(opened: Any, a40: Any) -> None:
    assert opened.nvmlDeviceGetSupportedVgpus(a40) == [558, 562]
    assert opened.nvmlVgpuTypeGetName(562) == "NVIDIA A40-8Q"
    assert opened.nvmlVgpuTypeGetClass(562) == "Quadro"
    assert opened.nvmlVgpuTypeGetLicense(562) == "Quadro-Virtual-DWS,5.0"
    assert opened.nvmlVgpuTypeGetFramebufferSize(562) == 8192 << 20
    assert opened.nvmlVgpuTypeGetDeviceID(562) == (0x223510DE, 0x14DC10DE)
    assert opened.nvmlVgpuTypeGetResolution(562) == (7680, 4320)
    assert opened.nvmlVgpuTypeGetNumDisplayHeads(562) == 4
    assert opened.nvmlVgpuTypeGetFrameRateLimit(562) == 60
    assert opened.nvmlVgpuTypeGetMaxInstances(a40, 562) == 6
    assert opened.nvmlVgpuTypeGetGpuInstanceProfileId(562) == 0xFFFFFFFF
    assert opened.nvmlVgpuTypeGetGpuInstanceProfileId(476) == 9
    assert opened.nvmlVgpuTypeGetMaxInstancesPerGpuInstance(476) == 1
    assert refusal(opened.nvmlVgpuTypeGetName, 1) == opened.NVML_ERROR_INVALID_ARGUMENT


def test_what_can_be_created_is_the_kernel_modules_answer(opened: Any, a40: Any, module: ModuleDouble) -> None:
    module.answers = {"creatable 0000:01:00.0": "ok types=562"}
    assert opened.nvmlDeviceGetCreatableVgpus(a40) == [562]
    module.answers = {"creatable 0000:01:00.0": "ok types=-"}
    assert opened.nvmlDeviceGetCreatableVgpus(a40) == []


def test_placements_are_told_and_creatable_ones_in_mixed_size_mode_only(
    opened: Any, a40: Any, module: ModuleDouble
) -> None:
    """Reference 3.3."""
    module.answers = {
        "placements 0000:01:00.0 562": "ok size=8 supported=0,16,24,40 creatable=16,40",
        "heterogeneous 0000:01:00.0 1": "ok",
    }
    supported = opened.nvmlDeviceGetVgpuTypeSupportedPlacements(a40, 562)
    assert (supported.placementSize, supported.placementIds[: supported.count]) == (8, [0, 16, 24, 40])
    assert refusal(opened.nvmlDeviceGetVgpuTypeCreatablePlacements, a40, 562) == opened.NVML_ERROR_NOT_SUPPORTED
    opened.nvmlDeviceSetVgpuHeterogeneousMode(a40, 1)
    module.write(state=A40.replace("hetero=0", "hetero=1"))
    assert opened.nvmlDeviceGetVgpuHeterogeneousMode(a40) == 1
    creatable = opened.nvmlDeviceGetVgpuTypeCreatablePlacements(a40, 562, version=2)
    assert creatable.placementIds[: creatable.count] == [16, 40]
    module.answers["heterogeneous 0000:01:00.0 0"] = "error 19 a vGPU exists"
    assert refusal(opened.nvmlDeviceSetVgpuHeterogeneousMode, a40, 0) == opened.NVML_ERROR_IN_USE


def test_a_vgpu_is_active_while_its_vm_runs(opened: Any, a40: Any, module: ModuleDouble) -> None:
    """Reference 5.4 and 6.1: the VM's UUID is the one on its QEMU's command line."""
    uuid = "f2670f5b-5f52-4a2e-9a0a-111111111111"
    with vm_process("acme.web-1", uuid) as pid:
        module.write(state=A40 + VGPU.format(pid=pid))
        [instance] = opened.nvmlDeviceGetActiveVgpus(a40)
        assert opened.nvmlVgpuInstanceGetVmID(instance) == (uuid.encode(), opened.NVML_VGPU_VM_ID_UUID)
        assert opened.nvmlVgpuInstanceGetType(instance) == 562
        assert opened.nvmlVgpuInstanceGetMdevUUID(instance) == "0000:01:00.1"
        assert opened.nvmlVgpuInstanceGetGpuInstanceId(instance) == 0xFFFFFFFF
        assert opened.nvmlVgpuInstanceGetLicenseInfo(instance).isLicensed == 1
        assert [one.vgpuInstance for one in opened.nvmlDeviceGetVgpuUtilization(a40, 0)] == [instance]
        first = opened.nvmlVgpuInstanceGetUUID(instance)
        assert first == opened.nvmlVgpuInstanceGetUUID(instance)
    module.write(state=A40)
    assert opened.nvmlDeviceGetActiveVgpus(a40) == []
    assert refusal(opened.nvmlVgpuInstanceGetType, instance) == opened.NVML_ERROR_NOT_FOUND


def test_the_schedulers_state_is_told_in_nanoseconds_and_set(opened: Any, a40: Any, module: ModuleDouble) -> None:
    """Reference 3.4."""
    assert opened.nvmlDeviceGetVgpuSchedulerState(a40).schedulerPolicy == opened.NVML_VGPU_SCHEDULER_POLICY_BEST_EFFORT
    capabilities = opened.nvmlDeviceGetVgpuSchedulerCapabilities(a40)
    assert list(capabilities.supportedSchedulers) == [1, 2, 3]
    wanted = opened.c_nvmlVgpuSchedulerSetState_t()
    wanted.schedulerPolicy, wanted.enableARRMode = 3, opened.NVML_VGPU_SCHEDULER_ARR_DISABLE
    wanted.schedulerParams.vgpuSchedData.timeslice = 4_000_000
    module.answers = {"scheduler 0000:01:00.0 policy=3 arr=1 slice_us=4000": "ok"}
    opened.nvmlDeviceSetVgpuSchedulerState(a40, wanted)
    now = A40.replace(
        "sched_policy=1 sched_arr=0 sched_slice_us=2000", "sched_policy=3 sched_arr=1 sched_slice_us=4000"
    )
    # The numbers are 0 while nothing is scheduled.
    for running, told in (("", 0), (VGPU.format(pid=1), 4_000_000)):
        module.write(state=now + running)
        state = opened.nvmlDeviceGetVgpuSchedulerState(a40)
        assert (state.schedulerPolicy, state.arrMode, state.schedulerParams.vgpuSchedData.timeslice) == (3, 1, told)
    wanted.schedulerParams.vgpuSchedData.timeslice = 31_000_000
    assert refusal(opened.nvmlDeviceSetVgpuSchedulerState, a40, wanted) == opened.NVML_ERROR_INVALID_ARGUMENT


def test_any_function_can_be_made_to_return_any_code(nvml: Any, module: ModuleDouble) -> None:
    """The names are NVML's, with or without a version at the end; a line ends with the file."""
    module.write(cards=CARDS, state=A40 + FLEX + A100)
    codes = module.folder / "nvml_codes"
    codes.write_text("nvmlDeviceGetMemoryInfo 999\nnvmlVgpuTypeGetFramebufferSize 28\nnvmlDeviceGetCount 17\n")
    nvml.nvmlInit()
    a40 = nvml.nvmlDeviceGetHandleByIndex(0)
    assert refusal(nvml.nvmlDeviceGetMemoryInfo, a40) == 999
    assert refusal(nvml.nvmlVgpuTypeGetFramebufferSize, 562) == 28
    assert refusal(nvml.nvmlDeviceGetCount) == 17
    assert nvml.nvmlDeviceGetName(a40) == "NVIDIA A40"
    nvml.nvmlShutdown()
    codes.unlink()
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).total


def test_mig_mode_is_pending_until_the_reset_that_ampere_needs(opened: Any, module: ModuleDouble) -> None:
    """Reference 5.1."""
    a100 = opened.nvmlDeviceGetHandleByIndex(1)
    assert opened.nvmlDeviceGetMigMode(a100) == [0, 0]
    module.answers = {"mig-mode 0001:c1:00.0 1": "ok current=0 pending=1 activation=19"}
    assert opened.nvmlDeviceSetMigMode(a100, 1) == opened.NVML_ERROR_IN_USE
    module.write(state=A100.replace("mig_pending=0", "mig_pending=1"))
    assert opened.nvmlDeviceGetMigMode(a100) == [0, 1]


def test_a_board_without_mig_does_not_support_it(opened: Any, a40: Any) -> None:
    assert refusal(opened.nvmlDeviceGetMigMode, a40) == opened.NVML_ERROR_NOT_SUPPORTED
    assert refusal(opened.nvmlDeviceSetMigMode, a40, 1) == opened.NVML_ERROR_NOT_SUPPORTED
    assert opened.nvmlDeviceGetMaxMigDeviceCount(a40) == 0


def test_gpu_instance_profiles_are_described_in_each_version(opened: Any, a100: Any) -> None:
    """Reference 5.2 and 5.4."""
    newer = opened.nvmlDeviceGetGpuInstanceProfileInfo(a100, opened.NVML_GPU_INSTANCE_PROFILE_3_SLICE)
    assert (newer.id, newer.sliceCount, newer.instanceCount, newer.multiprocessorCount) == (9, 3, 2, 42)
    assert (newer.memorySizeMB, newer.name) == (19968, "3g.20gb")
    older = opened.nvmlDeviceGetGpuInstanceProfileInfo(a100, opened.NVML_GPU_INSTANCE_PROFILE_3_SLICE, version=1)
    assert (older.id, older.memorySizeMB, older.decoderCount) == (9, 19968, 2)
    assert opened.nvmlDeviceGetGpuInstanceProfileInfoById(a100, 19).name == "1g.5gb"
    missing = opened.NVML_GPU_INSTANCE_PROFILE_8_SLICE
    assert refusal(opened.nvmlDeviceGetGpuInstanceProfileInfo, a100, missing) == opened.NVML_ERROR_NOT_SUPPORTED
    assert refusal(opened.nvmlDeviceGetGpuInstanceProfileInfo, a100, 99) == opened.NVML_ERROR_INVALID_ARGUMENT
    assert opened.nvmlDeviceGetMaxMigDeviceCount(a100) == 7


def test_gpu_instances_are_created_listed_and_destroyed(opened: Any, a100: Any, module: ModuleDouble) -> None:
    module.answers = {
        "gi-remaining 0001:c1:00.0 19": "ok count=0 starts=-",
        "gi-create 0001:c1:00.0 9 -": "ok id=2 start=4",
        "gi-create 0001:c1:00.0 9 4": "error 23 no room",
        "gi-destroy 0001:c1:00.0 2": "error 19 a compute instance is in it",
    }
    placements = (opened.c_nvmlGpuInstancePlacement_t * 7)()
    count = ctypes.c_uint(7)
    opened.nvmlDeviceGetGpuInstancePossiblePlacements(a100, 9, placements, ctypes.byref(count))
    assert [(one.start, one.size) for one in placements[: count.value]] == [(0, 4), (4, 4)]
    assert opened.nvmlDeviceGetGpuInstanceRemainingCapacity(a100, 19) == 0
    created = opened.nvmlDeviceCreateGpuInstance(a100, 9)
    info = opened.nvmlGpuInstanceGetInfo(created)
    assert (info.id, info.profileId, info.placement.start, info.placement.size) == (2, 9, 4, 4)
    assert refusal(opened.nvmlDeviceCreateGpuInstanceWithPlacement, a100, 9, ctypes.byref(placements[1])) == 23
    found = (opened.c_nvmlGpuInstance_t * 2)()
    opened.nvmlDeviceGetGpuInstances(a100, 9, found, ctypes.byref(count))
    assert [opened.nvmlGpuInstanceGetInfo(one).id for one in found[: count.value]] == [2, 1]
    assert refusal(opened.nvmlGpuInstanceDestroy, created) == opened.NVML_ERROR_IN_USE
    assert refusal(opened.nvmlDeviceGetGpuInstanceById, a100, 5) == opened.NVML_ERROR_NOT_FOUND
    module.write(state=A40 + FLEX + MIG_ON)
    assert refusal(opened.nvmlGpuInstanceGetInfo, created) == opened.NVML_ERROR_INVALID_ARGUMENT


def test_compute_instances_are_parts_of_a_gpu_instance(opened: Any, a100: Any, module: ModuleDouble) -> None:
    module.answers = {
        "ci-create 0001:c1:00.0 1 0 -": "ok id=0 start=0",
        "ci-remaining 0001:c1:00.0 1 0": "ok count=2 starts=1,2",
        "ci-destroy 0001:c1:00.0 1 0": "ok",
    }
    instance = opened.nvmlDeviceGetGpuInstanceById(a100, 1)
    profile = opened.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, 0, 0)
    assert (profile.id, profile.sliceCount, profile.multiprocessorCount) == (0, 1, 14)
    assert profile.name == "1c.3g.20gb"
    assert opened.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, 0) == 2
    created = opened.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    info = opened.nvmlComputeInstanceGetInfo(created)
    assert (info.id, info.profileId, info.placement.size) == (0, 0, 1)
    opened.nvmlComputeInstanceDestroy(created)
    assert module.asked[-1] == "ci-destroy 0001:c1:00.0 1 0"


def test_mig_devices_are_numbered_by_their_place_and_found_by_uuid(opened: Any, a100: Any) -> None:
    device = opened.nvmlDeviceGetMigDeviceHandleByIndex(a100, 0)
    assert opened.nvmlDeviceIsMigDeviceHandle(device).value == 1
    assert (opened.nvmlDeviceGetGpuInstanceId(device), opened.nvmlDeviceGetComputeInstanceId(device)) == (1, 0)
    uuid = opened.nvmlDeviceGetUUID(device)
    assert re.fullmatch(r"MIG-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)
    again = opened.nvmlDeviceGetHandleByUUID(uuid)
    assert opened.nvmlDeviceGetIndex(opened.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(again)) == 1
    assert opened.nvmlDeviceGetAttributes(device).multiprocessorCount == 14
    assert opened.nvmlDeviceGetMemoryInfo(device).total == 19968 << 20
    assert refusal(opened.nvmlDeviceGetMigDeviceHandleByIndex, a100, 2) == opened.NVML_ERROR_NOT_FOUND
    assert refusal(opened.nvmlDeviceGetUtilizationRates, a100) == opened.NVML_ERROR_NOT_SUPPORTED


def test_who_may_not_change_gets_no_permission(opened: Any, a40: Any, module: ModuleDouble) -> None:
    module.answers = {"heterogeneous 0000:01:00.0 1": "error 4 not root"}
    assert refusal(opened.nvmlDeviceSetVgpuHeterogeneousMode, a40, 1) == opened.NVML_ERROR_NO_PERMISSION
