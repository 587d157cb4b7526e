# SPDX-License-Identifier: Apache-2.0
"""Which steps build a slice on its host, and which give the device back. Pure: facts in, steps out."""

from vgpuctl.planner.plan import Plan, check_declared, check_slice, plan_release, plan_slice, with_first_drivers

__all__ = ["Plan", "check_declared", "check_slice", "plan_release", "plan_slice", "with_first_drivers"]
