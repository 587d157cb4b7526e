# SPDX-License-Identifier: Apache-2.0
"""The failure modes of vGPU hosts (reference 9) as checks: from what was read of a host to findings. Pure."""

from vgpuctl.planner.doctor.examined import DomainSigns, Examined, TunnelState
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.table import CHECKS, Check, examine

__all__ = ["CHECKS", "Check", "DomainSigns", "Examined", "Finding", "Severity", "TunnelState", "examine"]
