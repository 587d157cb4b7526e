# SPDX-License-Identifier: Apache-2.0
"""Targets for Prometheus's service discovery: hosts to probe, and what a tenant may scrape."""

from collections.abc import Iterable, Sequence
from typing import TypedDict

from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.usecases.telemetry.exporter import Exporter

_META = "__meta_vgpuctl_"


class TargetGroup(TypedDict):
    """One entry of http_sd's and file_sd's list."""

    targets: list[str]
    labels: dict[str, str]


def host_targets(exporter: Exporter) -> list[TargetGroup]:
    """Return each host as a target to probe; a relabelling rule puts it into `?target=` (docs/monitoring.md)."""
    return [{"targets": [name], "labels": {f"{_META}host": name}} for name in exporter.snapshots()]


def tenant_targets(exporter: Exporter, tenant: str, *, own_address: str) -> list[TargetGroup]:
    """Return a tenant's targets: the exporter's page of its shares, and the exporters of its guests that it allows.

    own_address: HOST:PORT of the exporter, as the request named it.
    """
    states = exporter.store.states
    leases = [] if states is None else [one for one in states.leases if one.tenant == tenant]
    found: list[TargetGroup] = []
    if leases:
        labels = {"__metrics_path__": f"/metrics/tenants/{tenant}", f"{_META}tenant": tenant, f"{_META}role": "shares"}
        found.append({"targets": [own_address], "labels": labels})
    return found + _guest_targets(() if states is None else states.vms, leases, tenant)


def _guest_targets(vms: Iterable[Vm], leases: Sequence[Lease], tenant: str) -> list[TargetGroup]:
    """The guests' exporters of VMs that run. Several GPUs of one VM are one target; their labels have each in order."""
    found: list[TargetGroup] = []
    for vm in sorted(vms, key=lambda one: one.request.name):
        if vm.request.tenant != tenant or vm.request.guest_metrics is None or vm.state is not VmState.RUNNING:
            continue
        held = [one for one in leases if one.vm_uuid == vm.uuid]
        about = {
            "role": "guest",
            "tenant": tenant,
            "vm": vm.request.name,
            "host": vm.host,
            "gpu": ",".join(one.share.gpu for one in held),
            "share": ",".join(one.share.vfio_device for one in held),
            "profile": ",".join(dict.fromkeys(one.share.profile for one in held)),
        }
        labels = {f"{_META}{name}": value for name, value in about.items()}
        found.append({"targets": [vm.request.guest_metrics], "labels": labels})
    return found
