# SPDX-License-Identifier: Apache-2.0
"""MIG instances that a board can have at once, their places, and the steps to a wanted set."""

from vgpuctl.planner.mig_geometry.devices import (
    describe_compute,
    devices_of,
    instances_of,
    part_problem,
    parts_of,
    slices_of,
    split_name,
)
from vgpuctl.planner.mig_geometry.fit import Misfit, Placed, check, describe, place
from vgpuctl.planner.mig_geometry.nearest import nearest
from vgpuctl.planner.mig_geometry.plan import GeometryPlan, Impossible, plan_geometry
from vgpuctl.planner.mig_geometry.table import GeometryTable, name_in, table_of, table_of_board

__all__ = [
    "GeometryPlan",
    "GeometryTable",
    "Impossible",
    "Misfit",
    "Placed",
    "check",
    "describe",
    "describe_compute",
    "devices_of",
    "instances_of",
    "name_in",
    "nearest",
    "part_problem",
    "parts_of",
    "place",
    "plan_geometry",
    "slices_of",
    "split_name",
    "table_of",
    "table_of_board",
]
