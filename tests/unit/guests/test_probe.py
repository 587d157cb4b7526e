# SPDX-License-Identifier: Apache-2.0
"""The probe as a guest runs it, with a libcuda and an nvidia-smi of the test's own: no guest here has NVIDIA's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vgpuctl.errors import GuestError
from vgpuctl.guests.facts.guest_report import MOST_BYTES, GuestGpu, GuestReport, describe, probe_script, read_report

SMI = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log><gpu id="00000000:05:00.0">
<product_name>NVIDIA A40-8Q</product_name><uuid>GPU-1</uuid>
<mig_mode><current_mig>N/A</current_mig></mig_mode>
<vgpu_software_licensed_product><license_status>Licensed (Expiry: 2026-12-1 0:0:0 GMT)</license_status>
</vgpu_software_licensed_product>
<fb_memory_usage><total>8192 MiB</total></fb_memory_usage>
</gpu></nvidia_smi_log>
"""
CUDA = """
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned f) { return FAILS; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)1; return 0; }
int cuDevicePrimaryCtxRelease(int d) { return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuMemAlloc_v2(unsigned long long *p, size_t n) { *p = (unsigned long long)malloc(n); return 0; }
int cuMemFree_v2(unsigned long long p) { free((void *)p); return 0; }
int cuMemcpyHtoD_v2(unsigned long long p, const void *s, size_t n) { memcpy((void *)p, s, n); return 0; }
static int copies;
int cuMemcpyDtoH_v2(void *d, unsigned long long p, size_t n)
{ memcpy(d, (void *)p, n); if (copies++) ((char *)d)[n - 1] ^= 1; return 0; }
"""


def _run(folder: Path, *, smi: str | None = None, cuda: int | None = None) -> GuestReport:
    """Run the probe. cuda: what cuInit answers; None for no libcuda."""
    programs = folder / "bin"
    programs.mkdir()
    if smi is not None:
        (programs / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{smi}END\n")
        (programs / "nvidia-smi").chmod(0o755)
    if cuda is not None:
        (folder / "cuda.c").write_text(CUDA.replace("FAILS", str(cuda)))
        library = str(programs / "libcuda.so.1")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, str(folder / "cuda.c")], check=True, timeout=60)
    (folder / "probe").write_text(probe_script())
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(programs)}
    command = [sys.executable, "-I", "-S", str(folder / "probe")]
    return read_report(subprocess.run(command, capture_output=True, check=True, timeout=60, env=environment).stdout)


def test_gpus_licence_and_copies(tmp_path: Path) -> None:
    report = _run(tmp_path, smi=SMI, cuda=0)
    (gpu,) = report.gpus
    assert (gpu.name, gpu.memory_mib, gpu.mig) == ("NVIDIA A40-8Q", 8192, None)
    assert gpu.licence == "Licensed (Expiry: 2026-12-1 0:0:0 GMT)"
    assert (report.cuda_devices, report.cuda_copies) == (2, 1)
    assert "cuda: device 1: what was copied came back changed" in report.errors
    assert describe(report)[0] == "GPU-1: NVIDIA A40-8Q" and set(report.errors) <= set(describe(report))
    loaded = GuestReport(1, driver="580.95.05", open_module=True, gpus=(GuestGpu("A100", "GPU-2", mig="Enabled"),))
    assert describe(loaded) == ("driver 580.95.05, open kernel module", "GPU-2: A100, MIG Enabled")


def test_a_guest_without_anything_says_so(tmp_path: Path) -> None:
    report = _run(tmp_path)
    assert (report.driver, report.gpus, report.cuda_devices) == (None, (), None)
    assert {line.partition(":")[0] for line in report.errors} == {"driver", "nvidia-smi", "cuda"}


def test_the_number_that_cuda_fails_with_is_told(tmp_path: Path) -> None:
    report = _run(tmp_path, smi="no XML at all\n", cuda=802)
    assert "cuda: cuInit answers 802" in report.errors and report.gpus == ()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "not valid JSON"),
        (b"x" * (MOST_BYTES + 1), "are not read"),
        (b"\xff", "codec"),
        (b"[" * 5000 + b"]" * 5000, "nested too deeply"),
        (b'{"version": 2}', "answers in version 2"),
        (b'{"version": 1, "cuda_devices": -1}', ">= 0"),
        (b'{"version": 1, "driver": 5}', "Expected"),
        (json.dumps({"version": 1, "gpus": [{"name": "x" * 201}]}).encode(), "length <= 200"),
        (json.dumps({"version": 1, "errors": ["x"] * 65}).encode(), "length <= 64"),
        (b'{"version": 1, "gpus": [{"memory_mib": 1e400}]}', "too large"),
    ],
)
def test_other_answers_are_refused(answer: bytes, why: str) -> None:
    with pytest.raises(GuestError, match=why):
        read_report(answer)
