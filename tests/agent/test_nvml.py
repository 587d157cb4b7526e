# SPDX-License-Identifier: Apache-2.0
"""NVML as the agent file reads it: through its own pynvml and a small libnvidia-ml.so.1."""

import shutil
import subprocess
from pathlib import Path

import pytest

from vgpuctl.hosts.bundle import build_agent

PYTHON = "/usr/bin/python3"
OPEN = """
import sys
sys.path.insert(0, sys.argv[1])
from vgpuctl.agent.facts import nvml_gpus, nvml_mig, nvml_vgpu
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml
nvml, problem = Nvml.open(Host())
if nvml is None:
    sys.exit(print(problem))
"""
READ = """
print(nvml.driver_version(), nvml.nvml_version())
gpus, problems = nvml_gpus.read(nvml)
print(problems)
for address, gpu in gpus.items():
    print(address, gpu.name, gpu.uuid, gpu.memory_mib, gpu.mig, gpu.heterogeneous, gpu.scheduler)
    print([(one.type_id, one.full_name, one.framebuffer_mib, one.max_instances) for one in gpu.types])
"""
TOPOLOGY = """
gpus, problems = nvml_gpus.read(nvml)
for gpu in gpus.values():
    print(gpu.topology)
"""
CHANGE = """
device = nvml.library.nvmlDeviceGetHandleByIndex(2)
[profile] = nvml_mig.read_profiles(nvml, device, sys.exit)
for start in (6, 2):
    handle = nvml_mig.create(nvml, device, profile, start)
nvml_mig.create_compute_instance(nvml, handle, 1)
for one in nvml_mig.read(nvml, device).instances:
    print(one.id, one.profile, one.start, one.size, len(one.compute))
nvml_vgpu.set_scheduler(nvml, device, "fixed-share", 5000)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source = Path(__file__).with_name("nvml_double.c")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    return library.parent


def run(tmp_path: Path, library_folder: Path, program: str) -> list[str]:
    file = tmp_path / "agent.pyz"
    file.write_bytes(build_agent().data)
    argv = [PYTHON, "-I", "-S", "-c", OPEN + program, str(file)]
    environment = {"LD_LIBRARY_PATH": str(library_folder)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.splitlines()


def test_gpus_and_types_are_read_and_a_lost_gpu_is_told(library: Path, tmp_path: Path) -> None:
    [versions, problems, a40, types, a100, none] = run(tmp_path, library, READ)
    assert versions == "550.127.06 12.550.127.06"
    assert problems == "['NVML: GPU 1 does not answer: GPU is lost']"
    assert a40 == "0000:c1:00.0 NVIDIA A40 GPU-f124aa59-d406-d45b-9481-8fcd694e6c9e 46068 None None None"
    assert types == "[('558', 'NVIDIA A40-2Q', 2048, 24), ('562', 'NVIDIA A40-8Q', 8192, 6)]"
    assert a100 == (
        "0000:c2:00.0 NVIDIA A100-PCIE-40GB GPU-f124aa59-d406-d45b-9481-8fcd694e6c9e 40960 "
        "NvmlMig(current=True, pending=False, instances=(), profiles=(MigProfileFacts(name='1g.5gb+me', profile_id=20, "
        "compute_slices=1, starts=(2, 6), size=1, max_count=2),), problems=()) None "
        "SchedulerFacts(policy='equal-share', time_slice_us=4000)"
    )
    assert none == "[]"


def test_nvlinks_and_the_fabric_are_read_by_peer(library: Path, tmp_path: Path) -> None:
    [a40, a100] = run(tmp_path, library, TOPOLOGY)
    assert a40 == "NvmlTopology(nvlinks=(), fabric=None, module=None)"
    assert a100 == (
        "NvmlTopology(nvlinks=("
        "NvLinks(numbers=(0, 1), is_active=True, peer='0000:05:00.0', peer_kind='switch', version=3), "
        "NvLinks(numbers=(2,), is_active=True, peer='0000:c1:00.0', peer_kind='gpu', version=3), "
        "NvLinks(numbers=(3,), is_active=False, peer=None, peer_kind=None, version=3)), "
        "fabric=FabricFacts(state='completed', cluster_uuid='abababab-abab-abab-abab-abababababab', clique=7, "
        "faults=('degraded bandwidth',), status=0), module=5)"
    )


def test_instances_and_the_scheduler_are_written_as_the_library_takes_them(library: Path, tmp_path: Path) -> None:
    assert run(tmp_path, library, CHANGE) == ["8 1g.5gb+me 2 1 1", "7 1g.5gb+me 6 1 0"]


def test_a_library_without_the_functions_is_a_problems_text(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
    [problem] = run(tmp_path, tmp_path, READ)
    assert problem.startswith("NVML cannot be used: ")
