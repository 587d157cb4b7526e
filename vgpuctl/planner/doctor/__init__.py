# SPDX-License-Identifier: Apache-2.0
"""The failure modes of vGPU hosts (reference 9) as checks: from what was read of a host to findings. Pure."""

from vgpuctl.planner.doctor.examined import DomainDiagnostics, Examined, TunnelState
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.health_checks import health_states
from vgpuctl.planner.doctor.table import CHECKS, Check, examine

__all__ = [
    "CHECKS",
    "Check",
    "DomainDiagnostics",
    "Examined",
    "Finding",
    "Severity",
    "TunnelState",
    "examine",
    "health_states",
]
