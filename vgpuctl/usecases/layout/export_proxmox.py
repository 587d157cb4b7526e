# SPDX-License-Identifier: Apache-2.0
"""export proxmox: what Proxmox VE needs to hand out the GPUs of hosts."""

from collections.abc import Sequence

from vgpuctl.inventory import exchange
from vgpuctl.usecases.layout.tool_exports import ToolExport, export_for
from vgpuctl.usecases.running.services import Services


def export_proxmox(services: Services, hosts: Sequence[str], *, profile: str | None, refresh: bool) -> ToolExport:
    """Write resource mappings and hostpci lines for these hosts, or for all.

    Raises InventoryError for an unknown host, and NotFound when there is nothing to export.
    """
    return export_for(services, "export proxmox", exchange.export_proxmox, hosts, profile=profile, refresh=refresh)
