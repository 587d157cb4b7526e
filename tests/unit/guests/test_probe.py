# SPDX-License-Identifier: Apache-2.0
"""The probe as a guest runs it, with a libcuda and an nvidia-smi of the test's own: no guest here has NVIDIA's."""

import json
import os
import subprocess
import sys
from itertools import permutations
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
#include <unistd.h>
typedef unsigned long long place;
static void *current;
static int plays(const char *what) { const char *told = getenv("PLAYS"); return told && !strcmp(told, what); }
int cuInit(unsigned f) { return plays("802") ? 802 : 0; }
int cuDeviceGetCount(int *n) { *n = atoi(getenv("GPUS")); return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)(long)(d + 1); return 0; }
int cuDevicePrimaryCtxRelease(int d) { return 0; }
int cuCtxSetCurrent(void *c) { current = c; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(place *p, size_t n)
{ if (plays("full") && n > 1 << 20 && current == (void *)1) return 2; *p = (place)malloc(n); return 0; }
int cuMemFree_v2(place p) { free((void *)p); return 0; }
int cuMemcpyHtoD_v2(place p, const void *s, size_t n) { memcpy((void *)p, s, n); return 0; }
int cuMemcpyDtoH_v2(void *d, place p, size_t n)
{ memcpy(d, (void *)p, n); if (plays("changed") && current == (void *)2) ((char *)d)[n - 1] ^= 1; return 0; }
int cuDeviceCanAccessPeer(int *can, int from, int to)
{ *can = !(plays("no access") && from == 1 && to == 0); return 0; }
int cuCtxEnablePeerAccess(void *peer, unsigned f) { return plays("enabled") ? 704 : plays("refused") ? 217 : 0; }
int cuMemcpyPeer(place to, void *there, place from, void *here, size_t n)
{
  if (here != current) return 201;
  if (plays("private")) return 0;  /* each keeps a mirror of its own */
  if (plays("slow")) usleep(2000);
  memcpy((void *)to, (void *)from, n);
  if (plays("broken") && here == (void *)1 && there == (void *)3) ((char *)to)[n / 2] ^= 1;
  return 0;
}
"""


@pytest.fixture(scope="module")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a libcuda that plays what PLAYS says, with as many devices as GPUS says."""
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "cuda.c").write_text(CUDA)
    command = [
        "gcc",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        str(folder / "libcuda.so.1"),
        str(folder / "cuda.c"),
    ]
    subprocess.run(command, check=True, timeout=60)
    return folder


def _run(folder: Path, *, smi: str | None = None, cuda: Path | None = None, **played: str) -> GuestReport:
    """Run the probe. cuda: where libcuda is; None for none. played: its PLAYS and GPUS."""
    programs = folder / "bin"
    programs.mkdir()
    if smi is not None:
        (programs / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{smi}END\n")
        (programs / "nvidia-smi").chmod(0o755)
    script = probe_script()
    if played.pop("seconds", None) == "0":
        script = script.replace("_PEER_SECONDS = 20", "_PEER_SECONDS = 0")
    (folder / "probe").write_text(script)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(cuda or programs), **played}
    command = [sys.executable, "-I", "-S", str(folder / "probe")]
    return read_report(subprocess.run(command, capture_output=True, check=True, timeout=60, env=environment).stdout)


def test_gpus_licence_and_copies(tmp_path: Path, libcuda: Path) -> None:
    report = _run(tmp_path, smi=SMI, cuda=libcuda, GPUS="2", PLAYS="changed")
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


def test_the_number_that_cuda_fails_with_is_told(tmp_path: Path, libcuda: Path) -> None:
    report = _run(tmp_path, smi="no XML at all\n", cuda=libcuda, GPUS="2", PLAYS="802")
    assert "cuda: cuInit answers 802" in report.errors and report.gpus == ()
    assert (report.cuda_devices, report.peer_copies) == (None, None)


ALL: dict[tuple[int, int], str | None] = dict.fromkeys(permutations(range(3), 2))


_LIKE_OTHERS = pytest.mark.long("tests/unit/guests/test_probe.py::test_each_gpu_copies_to_each_other_one")


@pytest.mark.parametrize(
    ("gpus", "plays", "copies"),
    [
        ("1", "", {}),
        ("3", "", ALL),
        pytest.param("3", "enabled", ALL, marks=_LIKE_OTHERS),
        ("3", "broken", {**ALL, (0, 2): "what was copied arrived changed"}),
        pytest.param("3", "private", dict.fromkeys(ALL, "what was copied arrived changed"), marks=_LIKE_OTHERS),
        pytest.param("3", "no access", {**ALL, (1, 0): "no peer access"}, marks=_LIKE_OTHERS),
        ("3", "refused", dict.fromkeys(ALL, "cuCtxEnablePeerAccess answers 217")),
        ("3", "full", {(1, 2): None, (2, 1): None}),
    ],
)
def test_each_gpu_copies_to_each_other_one(
    tmp_path: Path, libcuda: Path, gpus: str, plays: str, copies: dict[tuple[int, int], str | None]
) -> None:
    report = _run(tmp_path, cuda=libcuda, GPUS=gpus, PLAYS=plays)
    told = report.peer_copies or ()
    assert {(one.source, one.target): one.problem for one in told} == copies
    assert all((one.mib_s is None) is (one.problem is not None) for one in told)
    whole = sum(problem is None for problem in copies.values())
    assert (f"{whole} of {len(copies)} copies between its CUDA devices are whole" in describe(report)) is bool(copies)
    assert any("no copies between it and others" in one for one in report.errors) is (plays == "full")


def test_a_slow_copy_is_told_and_none_begins_after_the_limit(tmp_path: Path, libcuda: Path) -> None:
    for seconds in ("20", "0"):
        (folder := tmp_path / seconds).mkdir()
        report = _run(folder, cuda=libcuda, GPUS="2", PLAYS="slow", seconds=seconds)
        told = report.peer_copies or ()
        assert all(one.mib_s is not None and one.mib_s < 16_000 for one in told), "32 MiB take 2 ms and more"
        assert len(told) == (2 if seconds == "20" else 0)
        assert ("cuda: 2 copies between devices not tried in 0 s" in report.errors) is (seconds == "0")


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
        (b'{"version": 1, "peer_copies": [{"source": 0, "target": 65}]}', "<= 64"),
        (json.dumps({"version": 1, "peer_copies": [{"source": 0, "target": 1}] * 241}).encode(), "length <= 240"),
        (json.dumps({"version": 1, "gpus": [{"name": "x" * 201}]}).encode(), "length <= 200"),
        (json.dumps({"version": 1, "errors": ["x"] * 65}).encode(), "length <= 64"),
        (b'{"version": 1, "gpus": [{"memory_mib": 1e400}]}', "too large"),
    ],
)
def test_other_answers_are_refused(answer: bytes, why: str) -> None:
    with pytest.raises(GuestError, match=why):
        read_report(answer)
