# SPDX-License-Identifier: Apache-2.0
"""A setting that could not be read is neither as declared nor otherwise, in JSON: null."""

import pytest

from vgpuctl.cli.host.check_hosts import _object
from vgpuctl.cli.shown.layout_output import plan_object
from vgpuctl.hosts.fleet import HostResult
from vgpuctl.planner.layout.result import Difference, HostPlan, LayoutObstacle
from vgpuctl.usecases.host.check_hosts import CheckedHost

UNREAD = ("0000:41:00.0: its clocks could not be read",)
DIFFERENCE = Difference("0000:41:00.0", "power-limit", "200 W", "300 W")


@pytest.mark.parametrize(
    ("plan", "is_in_layout"),
    [
        (HostPlan(), True),
        (HostPlan(notes=UNREAD), None),
        (HostPlan(differences=(DIFFERENCE,)), False),
        (HostPlan(differences=(DIFFERENCE,), notes=UNREAD), False),
        (HostPlan(obstacles=(LayoutObstacle(None, "unread", "it could not be read"),), notes=UNREAD), False),
    ],
)
def test_the_answer_is_as_wide_as_what_was_read(plan: HostPlan, is_in_layout: bool | None) -> None:
    assert plan_object(plan)["is_in_layout"] is is_in_layout
    told = _object(HostResult("gpu1", CheckedHost("gpu1", plan, ())))
    assert told["plan"] is not None and told["plan"]["is_in_layout"] is is_in_layout
    assert told["has_drifted"] is {True: False, False: True, None: None}[is_in_layout]


def test_a_host_without_a_layout_has_not_drifted_from_it() -> None:
    told = _object(HostResult("gpu1", CheckedHost("gpu1", None, (), since_reboot=(DIFFERENCE,))))
    assert (told["plan"], told["has_drifted"]) == (None, True)
    assert _object(HostResult("gpu1", CheckedHost("gpu1", None, ())))["has_drifted"] is False
