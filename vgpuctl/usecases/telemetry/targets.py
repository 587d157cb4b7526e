# SPDX-License-Identifier: Apache-2.0
"""Targets for Prometheus's service discovery: hosts to probe, and what a tenant may scrape."""

from collections.abc import Sequence
from typing import TypedDict

from vgpuctl.usecases.telemetry.exporter import Exporter

_META = "__meta_vgpuctl_"


class TargetGroup(TypedDict):
    """One entry of http_sd's and file_sd's list."""

    targets: list[str]
    labels: dict[str, str]


def host_targets(exporter: Exporter) -> list[TargetGroup]:
    """Return each host as a target to probe; a relabelling rule puts it into `?target=` (docs/monitoring.md)."""
    return [{"targets": [name], "labels": {f"{_META}host": name}} for name in exporter.snapshots()]


def tenant_targets(exporter: Exporter, tenant: str, *, own_address: str) -> Sequence[TargetGroup]:
    """Return a tenant's targets: the exporter's page of its shares, where it has any. own_address: HOST:PORT."""
    if not any(one.tenant == tenant for leases in exporter.store.leases.values() for one in leases):
        return []
    labels = {"__metrics_path__": f"/metrics/tenants/{tenant}", f"{_META}tenant": tenant, f"{_META}role": "shares"}
    return [{"targets": [own_address], "labels": labels}]
