# SPDX-License-Identifier: Apache-2.0
"""What the agent reads for moves of vGPUs, and its comparison of a vGPU with another host's GPU."""

import ctypes
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agent.measured import inject
from tests.agent.simulated import PF, VM, Machine
from vgpuctl.agent import nvml_metadata
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.facts import sriov
from vgpuctl.agent.wire.envelope import Reply, Request, request_from_json, request_to_json
from vgpuctl.agent.wire.migration import LONGEST_METADATA, GpuMigration, VgpuComparison
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl_lab.simulated.machine.domains import HostDevice, start
from vgpuctl_lab.simulated.machine.nvml import SimulatedNvml
from vgpuctl_lab.simulated.machine.nvml_values import NvmlError

INSUFFICIENT_SIZE, UNKNOWN = 7, 999


def _with_vm(folder: Path) -> Machine:
    machine = Machine(folder, "a40", with_vfs=True)
    vf = machine.gpu().vfs[0].address
    machine.done(SetVfProfile(vf, machine.type_id("A40-8Q")))
    start(machine.files, VM, "web", [HostDevice(function=vf)])
    return machine


def _migration(machine: Machine) -> GpuMigration:
    found = machine.gpu().migration
    assert found is not None
    return found


def _compare(machine: Machine, metadata: str, vm: str = VM) -> Reply:
    request = Request("compatibility", comparison=VgpuComparison(PF, vm, metadata))
    assert request_from_json(request_to_json(request)) == request
    return answer(machine.host, request)


def test_a_card_and_its_running_vgpu_are_described_for_moves(tmp_path: Path) -> None:
    found = _migration(_with_vm(tmp_path))
    assert (found.can_migrate, found.read_mb_s, found.write_mb_s, found.streams) == (True, 12_000, 12_000, False)
    assert (found.ecc, found.gsp, found.problems) == (True, False, ())
    [vgpu] = found.vgpus
    assert found.versions is not None and vgpu.guest_version is not None
    assert found.versions[0] <= vgpu.guest_version <= found.versions[1]
    assert (vgpu.vm_uuid, vgpu.can_migrate, vgpu.state_bytes) == (VM, True, 8 << 30)


def test_faults_of_moves_are_seen_by_nvml(tmp_path: Path) -> None:
    machine = _with_vm(tmp_path)
    for kind, value in (("move-state", 64), ("move-unsupported", 1)):
        machine.begin(kind, value)
    found = _migration(machine)
    [vgpu] = found.vgpus
    assert (found.can_migrate, vgpu.can_migrate, vgpu.state_bytes) == (False, False, 64 << 20)


def test_a_card_without_vgpus_says_nothing_about_moves(tmp_path: Path) -> None:
    assert Machine(tmp_path, "flex-170").gpu().migration is None


@pytest.mark.parametrize(
    ("function", "missing"),
    [
        ("nvmlDeviceGetVgpuMetadata", ("metadata", "versions", "can_migrate", "host_driver")),
        ("nvmlDeviceGetVgpuCapabilities", ("read_mb_s", "write_mb_s", "streams", "warm_update")),
        ("nvmlDeviceGetEccMode", ("ecc",)),
        ("nvmlDeviceGetGspFirmwareMode", ("gsp",)),
        ("nvmlDeviceGetPgpuMetadataString", ("signature",)),
    ],
)
def test_what_does_not_answer_is_not_known_and_keeps_no_vm_from_the_card(
    function: str, missing: tuple[str, ...], tmp_path: Path
) -> None:
    machine = _with_vm(tmp_path)
    inject(machine, **{function: UNKNOWN})
    gpu = machine.gpu()
    assert gpu.migration is not None and (gpu.problems, gpu.unread) == ((), ())
    assert [name for name in vars(GpuMigration()) if name in missing and getattr(gpu.migration, name) is not None] == []
    assert any("(NVML 999)" in one for one in gpu.migration.problems)


def test_a_vgpu_is_compared_with_a_card(tmp_path: Path) -> None:
    machine = _with_vm(tmp_path / "one")
    own, other = _migration(machine), _migration(Machine(tmp_path / "other", "l40s"))
    assert own.metadata is not None and other.metadata is not None
    same, another = _compare(machine, own.metadata).compatibility, _compare(machine, other.metadata).compatibility
    assert same is not None and another is not None
    assert ((same.ways, same.limit_code), (another.ways, another.limit_code)) == ((0xF, 0), (0x1, 0x4))


def _longer(data: bytes) -> bytes:
    """An opaque part that claims to be longer than what was sent: the library would read on."""
    return data[:120] + (60_000).to_bytes(4, "little") + data[124:]


@pytest.mark.parametrize("spoil", [_longer, lambda data: data[:100], lambda _data: b"", lambda data: data * 1000])
def test_metadata_of_another_host_that_is_none_never_reaches_nvml(
    spoil: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    machine = _with_vm(tmp_path)
    data = b64decode(_migration(machine).metadata or "")
    problem = _compare(machine, b64encode(spoil(data)).decode()).problem
    assert problem is not None and problem.code is ProblemCode.UNEXPECTED_VALUE and "no metadata" in problem.message


def test_metadata_that_is_no_base64_is_refused(tmp_path: Path) -> None:
    problem = _compare(_with_vm(tmp_path), "!!").problem
    assert problem is not None and problem.code is ProblemCode.UNEXPECTED_VALUE


def test_a_vm_without_a_running_vgpu_cannot_be_compared(tmp_path: Path) -> None:
    machine = _with_vm(tmp_path)
    problem = _compare(machine, _migration(machine).metadata or "", VM.replace("1", "9")).problem
    assert problem is not None and problem.code is ProblemCode.NOT_FOUND


@pytest.mark.parametrize("size", [LONGEST_METADATA + 1, 2**32 - 1])
def test_an_answer_that_is_too_long_is_not_asked_for(size: int) -> None:
    asked: list[object] = []

    def ask(_subject: object, buffer: object, told: Any) -> int:
        asked.append(buffer)
        told._obj.value = size
        return INSUFFICIENT_SIZE

    library = SimpleNamespace(
        NVML_SUCCESS=0, NVML_ERROR_INSUFFICIENT_SIZE=INSUFFICIENT_SIZE, NVML_ERROR_UNKNOWN=UNKNOWN, NVMLError=NvmlError,
        _nvmlGetFunctionPointer=lambda _name: ask,
    )  # fmt: skip
    with pytest.raises(NvmlError):
        nvml_metadata.read_gpu(library, None)
    assert asked == [None]


def test_the_comparison_gives_nvml_the_bytes_of_both(tmp_path: Path) -> None:
    library: Any = SimulatedNvml(_with_vm(tmp_path).files)
    library.nvmlInit()
    device = library.nvmlDeviceGetHandleByIndex(0)
    [instance] = library.nvmlDeviceGetActiveVgpus(device)
    vgpu, gpu = nvml_metadata.read_vgpu(library, instance), nvml_metadata.read_gpu(library, device)
    seen: list[bytes] = []

    def ask(one: Any, other: Any, _found: Any) -> int:
        assert isinstance(one, ctypes.Array)
        seen.extend((bytes(one), bytes(other)))
        return 0

    double = SimpleNamespace(NVML_SUCCESS=0, NVMLError=NvmlError, _nvmlGetFunctionPointer=lambda _name: ask)
    assert nvml_metadata.compare(double, vgpu, gpu) == (0, 0)
    assert seen == [vgpu, gpu]


@pytest.mark.parametrize(
    ("driver", "state", "found"),
    [
        ("xe-vfio-pci", "RUNNING\n", "RUNNING"),
        ("xe-vfio-pci", None, None),
        ("vfio-pci", "RUNNING\n", None),
        (None, "RUNNING\n", None),
    ],
)
def test_the_kernel_tells_the_migration_of_vfs_with_a_driver_of_their_vendor(
    driver: str | None, state: str | None, found: str | None
) -> None:
    read: list[str] = []

    def read_optional(path: str) -> str | None:
        read.append(path)
        return state

    host: Any = SimpleNamespace(read_optional=read_optional)
    assert sriov.read_migration(host, "0000:41:00.1", driver) == found
    assert set(read) <= {"/sys/kernel/debug/vfio/0000:41:00.1/migration/state"}
