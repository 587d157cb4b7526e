# SPDX-License-Identifier: Apache-2.0
"""Which MIG instances a board can have at once, where each goes, and the way from what is there to what is wanted."""

from vgpuctl.planner.mig_geometry.fit import Misfit, Placed, check, describe, place
from vgpuctl.planner.mig_geometry.nearest import nearest
from vgpuctl.planner.mig_geometry.plan import GeometryPlan, Impossible, plan_geometry
from vgpuctl.planner.mig_geometry.table import Profile, Table, table_of, table_of_board

__all__ = [
    "GeometryPlan",
    "Impossible",
    "Misfit",
    "Placed",
    "Profile",
    "Table",
    "check",
    "describe",
    "nearest",
    "place",
    "plan_geometry",
    "table_of",
    "table_of_board",
]
