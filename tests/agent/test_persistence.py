# SPDX-License-Identifier: Apache-2.0
"""nvidia-persistenced does not count as a user of a card: it is stopped for the change and started again afterwards."""

from pathlib import Path

import pytest

from tests.agent.kernel import make, problem, take
from tests.agent.machine import a40, holder
from tests.agent.simulated import PF, Machine
from vgpuctl.agent.wire.steps import BindDriver, ResetFunction, SetMigMode, SetServiceActive, SetVirtualFunctions, Step

DAEMON = "nvidia-persistenced.service"


def started(folder: Path, board: str) -> Machine:
    machine = Machine(folder, board)
    machine.done(SetServiceActive(DAEMON, True))
    assert [one.command for one in machine.gpu().persistence] == ["nvidia-persistenced"]
    return machine


def is_running(machine: Machine) -> bool:
    return machine.files.state().services[DAEMON]


def test_a_card_that_only_the_daemon_has_open_can_be_given_away(tmp_path: Path) -> None:
    gpu = started(tmp_path, "a40/passthrough").gpu()
    assert gpu.users == ()
    assert "passthrough" in gpu.sharing


@pytest.mark.parametrize(
    ("board", "step"),
    [
        ("a40", SetVirtualFunctions(PF, 32)),
        ("a40/passthrough", BindDriver((PF,), "vfio-pci")),
        ("h100-pcie", SetMigMode(PF, True)),
    ],
)
def test_the_daemon_is_away_for_a_step_that_needs_the_card_alone(board: str, step: Step, tmp_path: Path) -> None:
    machine = started(tmp_path, board)
    assert machine.done(step)
    assert is_running(machine)
    assert not machine.done(step)


def test_the_daemon_comes_back_after_a_failure(tmp_path: Path) -> None:
    machine = started(tmp_path, "a40")
    with machine.files.change() as state:
        state.faults[PF] = {"board-unknown": 1}
    machine.refused(SetVirtualFunctions(PF, 32))
    assert is_running(machine)


def test_a_step_that_changes_nothing_leaves_the_daemon_alone(tmp_path: Path) -> None:
    machine = started(tmp_path, "a40")
    writes = machine.take(SetVirtualFunctions(PF, 0)).writes
    assert machine.take(SetVirtualFunctions(PF, 0)).writes == writes


def test_another_user_of_the_card_is_still_one(tmp_path: Path) -> None:
    machine = started(tmp_path, "a40/passthrough")
    machine.done(SetServiceActive("nvidia-dcgm.service", True))
    assert "nv-hostengine" in machine.refused(BindDriver((PF,), "vfio-pci")).message
    assert is_running(machine)


def test_a_daemon_that_systemd_did_not_start_is_named(tmp_path: Path) -> None:
    host = make(tmp_path, a40(), holder(8, "/dev/nvidia0", command="/usr/bin/nvidia-persistenced"))
    refused = problem(take(host, BindDriver((PF,), "vfio-pci")))
    assert refused.code == "held" and "nvidia-persistenced, pid 8" in refused.message
    assert problem(take(host, ResetFunction(PF))).code == "held"
