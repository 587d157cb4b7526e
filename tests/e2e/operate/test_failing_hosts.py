# SPDX-License-Identifier: Apache-2.0
"""`tests.proof.failing_hosts` in small: hosts reboot, and libvirtd ends, in the middle of every kind of command."""

import json
import subprocess
import sys

import pytest

from tests.lab.simulated_fixtures import need_simulated
from tests.proof.failing_hosts import SCENARIOS

COMMANDS = ("create-vm, preempting", "apply-hosts, MIG and vGPUs")
DEFINING = ("create-vm, gang", "start-vm, again placed")
POINTS = ("define", "start")
_LONG = pytest.mark.long(
    "tests/e2e/operate/test_failing_hosts.py::test_hosts_that_fail_in_the_middle_leave_nothing_half"
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("fault", "names", "points"),
    [
        ("reboot", COMMANDS, "1"),
        pytest.param("reboot", ("delete-vm, whole card",), "1", marks=_LONG),
        pytest.param("reboot", ("start-vm", "start-vm, again placed"), "start", marks=_LONG),
        ("libvirtd", DEFINING[:1], "define"),
        pytest.param("libvirtd", DEFINING[1:], "define", marks=_LONG),
        pytest.param("libvirtd-restart", DEFINING, "define", marks=_LONG),
    ],
    ids=[
        "reboot",
        "reboot of a whole card",
        "reboot after the start",
        "libvirtd",
        "libvirtd at a start",
        "libvirtd-restart",
    ],
)
def test_hosts_that_fail_in_the_middle_leave_nothing_half(fault: str, names: tuple[str, ...], points: str) -> None:
    need_simulated()
    assert set(names) <= set(SCENARIOS)
    only = [word for name in names for word in ("--only", name)]
    point = ("--after", points) if points in POINTS else ("--points", points)
    words = [sys.executable, "-m", "tests.proof.failing_hosts", "--fault", fault, *point, *only]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=550)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])[fault]
    assert told["faults"] == []
    assert set(told["points"]) == set(names)
