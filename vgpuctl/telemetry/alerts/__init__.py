# SPDX-License-Identifier: Apache-2.0
"""The alerts that vgpuctl ships: one table with a file for each group, from which rule files, their tests and
docs/monitoring.md are made.
"""

from vgpuctl.telemetry.alerts.alert import Alert, AlertSeverity
from vgpuctl.telemetry.alerts.of_capacity import OF_CAPACITY
from vgpuctl.telemetry.alerts.of_gpus import OF_GPUS, OF_QUARANTINES
from vgpuctl.telemetry.alerts.of_hosts import OF_HOSTS
from vgpuctl.telemetry.alerts.of_monitoring import OF_MONITORING
from vgpuctl.telemetry.alerts.of_shares import OF_SHARES

__all__ = ["ALERTS", "Alert", "AlertSeverity"]

ALERTS: tuple[Alert, ...] = (*OF_MONITORING, *OF_HOSTS, *OF_GPUS, *OF_QUARANTINES, *OF_CAPACITY, *OF_SHARES)
