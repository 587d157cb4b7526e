# SPDX-License-Identifier: Apache-2.0
"""`tests.proof.failing_hosts` in small: hosts reboot, and libvirtd ends, in the middle of every kind of command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.simulated_fixtures import need_simulated
from tests.proof.failing_hosts import SCENARIOS, FailingHosts, prepared_fleet
from tests.proof.fleet import ProofFleet

COMMANDS = ("create-vm, preempting", "apply-hosts, MIG and vGPUs")
DEFINING = ("create-vm, gang", "start-vm, again placed")
_LONG = pytest.mark.long(
    "tests/e2e/operate/test_failing_hosts.py::test_hosts_that_fail_in_the_middle_leave_nothing_half"
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProofFleet]:
    need_simulated()
    with prepared_fleet(tmp_path_factory.mktemp("failing"), restores=True) as made:
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("fault", "names", "points"),
    [
        ("reboot", COMMANDS[:1], 1),
        pytest.param("reboot", COMMANDS[1:], 1, marks=_LONG),
        pytest.param("reboot", ("delete-vm, whole card",), 1, marks=_LONG),
        pytest.param("reboot", ("start-vm", "start-vm, again placed"), "start", marks=_LONG),
        pytest.param("libvirtd", DEFINING[:1], "define", marks=_LONG),
        pytest.param("libvirtd", DEFINING[1:], "define", marks=_LONG),
        pytest.param("libvirtd-restart", DEFINING, "define", marks=_LONG),
    ],
    ids=[
        "reboot",
        "reboot of hosts whose layout changes",
        "reboot of a whole card",
        "reboot after the start",
        "libvirtd",
        "libvirtd at a start",
        "libvirtd-restart",
    ],
)
def test_hosts_that_fail_in_the_middle_leave_nothing_half(
    fault: str, names: tuple[str, ...], points: int | str, fleet: ProofFleet, tmp_path: Path
) -> None:
    tried = FailingHosts(fleet, tmp_path, fault, restores=True)
    most, after = (points, None) if isinstance(points, int) else (None, points)
    for name in names:
        tried.run(name, SCENARIOS[name], most, after)
    assert tried.faults == []
    assert tried.points == dict.fromkeys(names, 1)
