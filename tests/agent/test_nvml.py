# SPDX-License-Identifier: Apache-2.0
"""NVML as the agent file reads it: through its own pynvml and a small libnvidia-ml.so.1."""

import shutil
import subprocess
from pathlib import Path

import pytest

from vgpuctl.hosts.bundle import build_agent

PYTHON = "/usr/bin/python3"
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml
nvml, problem = Nvml.open(Host())
if nvml is None:
    print(problem)
else:
    with nvml:
        print(nvml.driver_version(), nvml.nvml_version())
        print(nvml.gpus())
"""


def run(tmp_path: Path, library_folder: Path) -> list[str]:
    file = tmp_path / "agent.pyz"
    file.write_bytes(build_agent().data)
    argv = [PYTHON, "-I", "-S", "-c", PROGRAM, str(file)]
    environment = {"LD_LIBRARY_PATH": str(library_folder)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_gpus_and_types_are_read_and_a_lost_gpu_is_told(tmp_path: Path) -> None:
    source = Path(__file__).with_name("nvml_double.c")
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    [versions, answer] = run(tmp_path, tmp_path)
    assert versions == "550.127.06 12.550.127.06"
    assert answer == (
        "({'0000:c1:00.0': NvmlGpu(name='NVIDIA A40', uuid='GPU-f124aa59-d406-d45b-9481-8fcd694e6c9e', "
        "memory_mib=46068, mig_mode=None, mig_pending=None, types=("
        "NvmlType(type_id='558', full_name='NVIDIA A40-2Q', framebuffer_mib=2048, max_instances=24), "
        "NvmlType(type_id='562', full_name='NVIDIA A40-8Q', framebuffer_mib=8192, max_instances=6)))}, "
        "['NVML: GPU 1 does not answer: GPU is lost'])"
    )


def test_a_library_without_the_functions_is_a_problems_text(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
    [problem] = run(tmp_path, tmp_path)
    assert problem.startswith("NVML cannot be used: ")
