# SPDX-License-Identifier: Apache-2.0
"""The part of pynvml that travels with the agent."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pynvml

from vgpuctl.hosts.pynvml_excerpt import excerpt, names_used

SOURCE = Path(pynvml.__file__).read_text()


def load(text: str, folder: Path) -> ModuleType:
    file = folder / "excerpt_of_pynvml.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("excerpt_of_pynvml", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    # pynvml looks itself up among the modules while it runs.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def test_what_is_wanted_comes_with_all_that_it_needs(tmp_path: Path) -> None:
    part = load(excerpt(SOURCE, {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetGpuInstanceProfileInfoV"}), tmp_path)
    assert part.nvmlDeviceGetMemoryInfo.__name__ == "nvmlDeviceGetMemoryInfo"
    assert part.c_nvmlGpuInstanceProfileInfo_v2_t().version == pynvml.c_nvmlGpuInstanceProfileInfo_v2_t().version
    assert not hasattr(part, "nvmlDeviceGetName")


def test_every_error_keeps_its_class(tmp_path: Path) -> None:
    part = load(excerpt(SOURCE, set()), tmp_path)
    for name in vars(pynvml):
        if name.startswith("NVMLError_"):
            assert getattr(part, name)().value == getattr(pynvml, name)().value


def test_with_everything_wanted_everything_is_there(tmp_path: Path) -> None:
    everything = {name for name in vars(pynvml) if name.startswith(("nvml", "NVML", "c_nvml"))}
    part = load(excerpt(SOURCE, everything), tmp_path)
    assert everything <= vars(part).keys()


def test_names_that_a_program_puts_together_are_found_by_their_beginning(tmp_path: Path) -> None:
    wanted = names_used(['getattr(library, f"NVML_GPU_INSTANCE_PROFILE_{suffix}")'])
    assert load(excerpt(SOURCE, wanted), tmp_path).NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1 == 7


def test_names_are_found_as_attributes_and_as_text() -> None:
    source = 'library.nvmlInit(); getattr(library, "nvmlShutdown"); print("nvml is here", other.thing)'
    assert names_used([source]) == {"nvmlInit", "nvmlShutdown"}
