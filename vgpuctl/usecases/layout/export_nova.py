# SPDX-License-Identifier: Apache-2.0
"""export nova: what OpenStack Nova needs to hand out the GPUs of hosts."""

from collections.abc import Sequence

from vgpuctl.inventory import exchange
from vgpuctl.usecases.layout.tool_exports import ToolExport, export_for
from vgpuctl.usecases.running.services import Services


def export_nova(services: Services, hosts: Sequence[str], *, profile: str | None, refresh: bool) -> ToolExport:
    """Write parts of nova.conf, aliases and the properties of flavors for these hosts, or for all.

    Raises InventoryError for an unknown host, and NotFound when there is nothing to export.
    """
    return export_for(services, "export nova", exchange.export_nova, hosts, profile=profile, refresh=refresh)
