# SPDX-License-Identifier: Apache-2.0
"""From a host's declared layout and its facts to ordered steps, what they disturb, their undo, and the differences."""

from vgpuctl.planner.layout.manifest import manifest_after, manifest_of, shares_of
from vgpuctl.planner.layout.plan import leases_in_the_way, plan_host
from vgpuctl.planner.layout.reached import reached
from vgpuctl.planner.layout.result import (
    Difference,
    Disturbed,
    HostPlan,
    LayoutObstacle,
    Phase,
    PlannedStep,
    Stranded,
)
from vgpuctl.planner.layout.selection import Selection, SkippedGpu, select_steps
from vgpuctl.planner.layout.step_words import describe_step

__all__ = [
    "Difference",
    "Disturbed",
    "HostPlan",
    "LayoutObstacle",
    "Phase",
    "PlannedStep",
    "Selection",
    "SkippedGpu",
    "Stranded",
    "describe_step",
    "leases_in_the_way",
    "manifest_after",
    "manifest_of",
    "plan_host",
    "reached",
    "select_steps",
    "shares_of",
]
