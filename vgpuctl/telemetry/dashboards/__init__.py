# SPDX-License-Identifier: Apache-2.0
"""The dashboards that vgpuctl ships for Grafana, as tables of panels."""

from vgpuctl.telemetry.dashboards.dashboard import Dashboard
from vgpuctl.telemetry.dashboards.fleet import FLEET
from vgpuctl.telemetry.dashboards.gpu import GPU
from vgpuctl.telemetry.dashboards.host import HOST
from vgpuctl.telemetry.dashboards.queue import QUEUE
from vgpuctl.telemetry.dashboards.tenant import TENANT

DASHBOARDS: tuple[Dashboard, ...] = (FLEET, HOST, GPU, TENANT, QUEUE)

__all__ = ["DASHBOARDS", "Dashboard"]
