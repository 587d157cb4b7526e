# SPDX-License-Identifier: Apache-2.0
"""MPS in a guest: what the seed writes, what the unit's script tells a daemon, and what the probe reads back.

The daemon and nvidia-smi are the test's own: no guest here has NVIDIA's.
"""

import base64
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.guests.cases import REQUEST, vm
from vgpuctl.errors import GuestError
from vgpuctl.guests.facts.guest_report import GuestMps, GuestReport, probe_script, read_report
from vgpuctl.guests.seed.image import seed_files
from vgpuctl.guests.seed.linux_setup import MPS_PATH, guest_files
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.mps import GuestRequest, Mps
from vgpuctl.model.promise import Moment, PromiseRow, PromiseVerdict
from vgpuctl.model.vm import VmRequest
from vgpuctl.promises.compare import compare
from vgpuctl.promises.witnessed import NO_CONSENT, Promised, SeenInside, Witnessed
from vgpuctl.usecases.vm.check_vm import seen_inside

KEPT, BROKEN, UNSEEN = PromiseVerdict.KEPT, PromiseVerdict.BROKEN, PromiseVerdict.NOT_LOOKED_AT
DAEMON = """#!/bin/sh
read -r verb one two
case $verb in
set_default_active_thread_percentage) echo "$one.0" >"$STATE/threads"; echo "$one.0" ;;
get_default_active_thread_percentage) cat "$STATE/threads" ;;
set_default_device_pinned_mem_limit) echo "$two" >"$STATE/memory-$one" ;;
get_default_device_pinned_mem_limit) cat "$STATE/memory-$one" ;;
get_server_list) [ ! -e "$STATE/clients" ] || echo 4711 ;;
get_client_list) cat "$STATE/clients" ;;
esac
"""
SMI = """#!/bin/sh
case $* in
*EXCLUSIVE_PROCESS*) [ -z "${FORBIDDEN:-}" ] || { echo 'Insufficient Permissions'; exit 4; }
    echo Exclusive_Process >"$STATE/mode" ;;
*DEFAULT*) echo Default >"$STATE/mode" ;;
*--query-gpu=index,memory.total*) printf '0, 8192\\n1, 4096\\n' ;;
*-L*) printf 'GPU 0: A\\nGPU 1: B\\n' ;;
*) mode=$(cat "$STATE/mode"); echo '<nvidia_smi_log>'
   for size in 8192 4096; do
   echo "<gpu><compute_mode>$mode</compute_mode><fb_memory_usage><total>$size MiB</total></fb_memory_usage></gpu>"
   done; echo '</nvidia_smi_log>' ;;
esac
"""


class Guest:
    """A folder with the programs of a guest, which keep what they are told in its state."""

    def __init__(self, folder: Path, mps: Mps) -> None:
        self.folder = folder
        self.programs, self.state = folder / "bin", folder / "state"
        for path in (self.programs, self.state):
            path.mkdir()
        (self.state / "mode").write_text("Default\n")
        given = {one.path: base64.b64decode(one.content).decode() for one in guest_files(mps)}
        texts = {"nvidia-cuda-mps-control": DAEMON, "nvidia-smi": SMI, "mps": given[MPS_PATH]}
        for name, text in texts.items():
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)

    def runs(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the guest."""
        known = {"PATH": f"{self.programs}:{os.environ['PATH']}", "STATE": str(self.state), **environment}
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=known)

    def report(self) -> GuestReport:
        """Run the probe, without CUDA."""
        (self.folder / "probe").write_text(probe_script())
        done = self.runs(sys.executable, "-I", "-S", str(self.folder / "probe"), LD_LIBRARY_PATH=str(self.programs))
        return read_report(done.stdout.encode())


def row(mps: Mps, inside: SeenInside) -> tuple[PromiseVerdict, str]:
    request = replace(REQUEST, guest=GuestRequest(mps))
    found = compare(Promised(vm(request)), Witnessed(guest=inside), Moment.CHECK)
    one = next(one for one in found if one.row is PromiseRow.MPS)
    return one.verdict, one.seen or one.why


@pytest.mark.parametrize(
    ("mps", "threads", "memory"),
    [
        (Mps(4), 25, (2048, 1024)),
        (Mps(3, 50), 50, (2730, 1365)),
        (Mps(8, 100, 512), 100, (512, 512)),
        (Mps(60), 1, (136, 68)),
    ],
)
def test_what_the_daemon_is_told_is_what_the_guest_shows(
    tmp_path: Path, mps: Mps, threads: int, memory: tuple[int, int]
) -> None:
    guest = Guest(tmp_path, mps)
    for verb in ("prepare", "limits"):
        done = guest.runs("mps", verb)
        assert done.returncode == 0, done
    assert (guest.state / "mode").read_text() == "Exclusive_Process\n"
    report = guest.report()
    assert report.mps == GuestMps(threads, memory, 0)
    assert {one.compute_mode for one in report.gpus} == {"Exclusive_Process"}
    verdict, words = row(mps, seen_inside(report))
    assert (verdict, "compute mode" in words) == (KEPT, False)
    assert row(replace(mps, threads_percent=threads - 1 or 2), seen_inside(report))[0] is BROKEN
    assert row(replace(mps, memory_mib=99), seen_inside(report))[0] is BROKEN
    assert guest.runs("mps", "free").returncode == 0
    assert guest.runs("mps", "other").returncode == 2


def test_a_compute_mode_that_the_driver_keeps_is_told(tmp_path: Path) -> None:
    guest = Guest(tmp_path, Mps(4))
    done = guest.runs("mps", "prepare", FORBIDDEN="1")
    assert (done.returncode, "the driver keeps the compute mode as it is" in done.stdout) == (0, True)
    guest.runs("mps", "limits")
    verdict, words = row(Mps(4), seen_inside(guest.report()))
    assert (verdict, "programs beside MPS are possible: compute mode Default" in words) == (KEPT, True)


def test_a_daemon_that_does_not_do_as_it_is_told_fails_the_unit(tmp_path: Path) -> None:
    guest = Guest(tmp_path, Mps(4))
    (guest.programs / "nvidia-cuda-mps-control").write_text("#!/bin/sh\necho 100.0\n")
    done = guest.runs("mps", "limits")
    assert (done.returncode, "has 100.0" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("program", "text", "mps", "told"),
    [
        ("nvidia-smi", "exit 9", Mps(4), "nvidia-smi shows no GPU"),
        ("nvidia-smi", "printf '0, [N/A]\\n'", Mps(4), "GPU 0: its memory is not told"),
        ("nvidia-smi", "printf '0,\\n1, 4096\\n'", Mps(4), "GPU 0: its memory is not told"),
        ("nvidia-smi", "printf '0, [N/A]\\n'", Mps(4, None, 512), None),
        (
            "nvidia-cuda-mps-control",
            "read -r verb; case $verb in set_default_d*) exit 1 ;; *) echo 25.0 ;; esac",
            Mps(4),
            "does not take the limit of 2048 MiB",
        ),
    ],
)
def test_a_limit_of_memory_that_is_not_set_fails_the_unit(
    tmp_path: Path, program: str, text: str, mps: Mps, told: str | None
) -> None:
    guest = Guest(tmp_path, mps)
    (guest.programs / program).write_text(f"#!/bin/sh\n{text}\n")
    done = guest.runs("mps", "limits")
    assert (done.returncode == 0) is (told is None), done
    assert told is None or told in done.stdout


def test_the_probe_does_not_wait_for_programs_that_use_mps(tmp_path: Path) -> None:
    guest = Guest(tmp_path, Mps(4))
    guest.runs("mps", "limits")
    (guest.state / "clients").write_text("12\n13\n")
    report = guest.report()
    assert report.mps is not None and report.mps.clients == 2
    assert "cuda: not tried beside 2 programs that use MPS" in report.errors
    assert (report.cuda_devices, report.cuda_copies) == (None, None)


def test_no_daemon_breaks_the_promise_and_a_silent_guest_keeps_nothing(tmp_path: Path) -> None:
    guest = Guest(tmp_path, Mps(4))
    (guest.programs / "nvidia-cuda-mps-control").write_text("#!/bin/sh\necho Cannot find MPS control daemon\nexit 1\n")
    report = guest.report()
    assert any(line.startswith("mps: Cannot find MPS control daemon") for line in report.errors)
    assert row(Mps(4), seen_inside(report)) == (BROKEN, "no control daemon of MPS answers")
    request = replace(REQUEST, guest=GuestRequest(Mps(4)))
    found = compare(Promised(vm(request)), Witnessed(guest=NO_CONSENT), Moment.CHECK)
    assert next(one.verdict for one in found if one.row is PromiseRow.MPS) is UNSEEN
    found = compare(Promised(vm(REQUEST)), Witnessed(guest=NO_CONSENT), Moment.CHECK)
    assert PromiseRow.MPS not in {one.row for one in found}, "it was not asked for"


def test_a_limit_that_the_guest_does_not_tell_is_not_kept(tmp_path: Path) -> None:
    guest = Guest(tmp_path, Mps(4))
    guest.runs("mps", "limits")
    (guest.state / "memory-1").write_text("some\n")
    verdict, words = row(Mps(4), seen_inside(guest.report()))
    assert (verdict, "does not tell the limit of each GPU" in words) == (UNSEEN, True)


@pytest.mark.parametrize(
    "mps",
    [
        {"threads": 101},
        {"threads": -1},
        {"threads": "25"},
        {"threads": 25, "memory_mib": [1] * 65},
        {"threads": 25, "clients": -1},
        {"threads": 25, "memory_mib": [2**40]},
        [],
    ],
)
def test_a_guest_cannot_say_what_no_daemon_says(mps: object) -> None:
    with pytest.raises(GuestError, match="cannot be used"):
        read_report(json.dumps({"version": 1, "mps": mps}).encode())


def _script(request: VmRequest) -> str:
    driver = GuestDriver(DriverSource.IMAGE)
    return seed_files(REQUEST.cloud_init, vm(replace(request, guest_driver=driver)))["vendor-data"]


def test_the_seed_has_the_unit_where_it_is_asked_for() -> None:
    script = _script(replace(REQUEST, guest=GuestRequest(Mps(4, 25, 2048))))
    checked = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False, timeout=10)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "\nMPS=yes\n" in script and f"chmod 0755 {MPS_PATH}\n" in script
    without = _script(REQUEST)
    assert "\nMPS=''\n" in without and f"chmod 0755 {MPS_PATH}\n" not in without


def test_the_unit_is_one_that_systemd_reads(tmp_path: Path) -> None:
    script = _script(replace(REQUEST, guest=GuestRequest(Mps(4))))
    function = script[script.index("\nmps() {") : script.index("\nlater() {")]
    paths = {"/etc/systemd/system": tmp_path, "/etc/tmpfiles.d": tmp_path}
    for path, there in paths.items():
        function = function.replace(path, str(there))
    for name in ("systemctl", "nvidia-cuda-mps-control"):
        (tmp_path / name).write_text("#!/bin/sh\necho $0 $* >>calls\n")
        (tmp_path / name).chmod(0o755)
    head = 'MPS=yes SOURCE=image; is_there() { command -v "$1" >/dev/null 2>&1; }\nfail() { exit 1; }\n'
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", "-euc", f"{head}{function}\nmps"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=10, env=environment, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (0, "programs that use CUDA share the GPUs\n"), done.stderr
    unit = dict(line.partition("=")[::2] for line in (tmp_path / "vgpuctl-mps.service").read_text().splitlines())
    assert unit["ExecStart"] == f"{tmp_path}/nvidia-cuda-mps-control -d"
    assert unit["ExecStartPre"] == f"{MPS_PATH} prepare" and unit["ExecStartPost"] == f"{MPS_PATH} limits"
    assert (tmp_path / "calls").read_text().splitlines()[-1].endswith("systemctl restart vgpuctl-mps.service")
