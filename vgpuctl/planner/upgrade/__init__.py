# SPDX-License-Identifier: Apache-2.0
"""The upgrade of hosts to another driver or kernel: which guests break, what changes on a host, and the order."""

from vgpuctl.planner.upgrade.host_changes import HostChange, UpgradeTarget
from vgpuctl.planner.upgrade.order import UpgradeHost, UpgradePlan, UpgradeStep, UpgradeVm, plan_upgrade
from vgpuctl.sharing.guest_drivers import BranchVerdict, GuestCheck, GuestVerdict, check_guest, guest_branches

__all__ = [
    "BranchVerdict",
    "GuestCheck",
    "GuestVerdict",
    "HostChange",
    "UpgradeHost",
    "UpgradePlan",
    "UpgradeStep",
    "UpgradeTarget",
    "UpgradeVm",
    "check_guest",
    "guest_branches",
    "plan_upgrade",
]
