# SPDX-License-Identifier: Apache-2.0
"""What `move-vm --check` prints says no more than was looked at."""

import pytest

from tests.integration.store.samples import vm
from vgpuctl.cli.shown.move_verdicts import show_move_check


def test_a_fleet_of_one_host_is_not_told_that_nothing_forbids_a_move(capfd: pytest.CaptureFixture[str]) -> None:
    show_move_check(vm(), ())
    said = "".join(capfd.readouterr())
    assert "there is no other host" in said
    assert "forbids" not in said
