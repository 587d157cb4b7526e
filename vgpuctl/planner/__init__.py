# SPDX-License-Identifier: Apache-2.0
"""Which steps build a share on its host, and which release the device. Pure: facts in, steps out."""

from vgpuctl.planner.plan import check_declared, check_share, plan_release, plan_share, with_first_drivers

__all__ = ["check_declared", "check_share", "plan_release", "plan_share", "with_first_drivers"]
