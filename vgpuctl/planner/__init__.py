# SPDX-License-Identifier: Apache-2.0
"""Steps that build a share on its host and steps that release it. Pure: facts in, steps out."""

from vgpuctl.planner.plan import check_rules, check_share, plan_release, plan_share, with_first_drivers

__all__ = ["check_rules", "check_share", "plan_release", "plan_share", "with_first_drivers"]
