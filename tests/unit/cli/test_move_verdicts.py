# SPDX-License-Identifier: Apache-2.0
"""What `move-vm --check` prints says no more than was looked at."""

import pytest

from tests.integration.store.samples import vm
from vgpuctl.cli.shown.move_verdicts import show_move_check
from vgpuctl.model.move_verdict import MoveKind, MoveVerdict


def test_a_fleet_of_one_host_is_not_told_that_nothing_forbids_a_move(capfd: pytest.CaptureFixture[str]) -> None:
    show_move_check(vm(), ())
    said = "".join(capfd.readouterr())
    assert "there is no other host" in said
    assert "forbids" not in said


def test_only_a_live_move_has_an_estimate_of_its_stop(capfd: pytest.CaptureFixture[str]) -> None:
    rows = [(str(kind), MoveVerdict(kind, (), (), downtime_s=7.5)) for kind in MoveKind]
    show_move_check(vm(), rows)
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "about 7.5 s" in line] == ["live"]
