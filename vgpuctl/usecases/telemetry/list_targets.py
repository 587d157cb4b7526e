# SPDX-License-Identifier: Apache-2.0
"""list-targets: what Prometheus can discover: hosts to probe, shares of tenants, exporters in guests."""

from collections.abc import Iterable, Sequence
from typing import TypedDict

from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.telemetry.shipped_files import require_address
from vgpuctl.usecases.running.services import Services

_META = "__meta_vgpuctl_"


class TargetGroup(TypedDict):
    """One entry of the list that http_sd and file_sd read."""

    targets: list[str]
    labels: dict[str, str]


def list_targets(services: Services, *, tenant: str | None, exporter: str) -> list[TargetGroup]:
    """Return the targets of a tenant; without one, the hosts and the guests of every tenant. No host is contacted.

    exporter: ADDRESS:PORT of the exporter that serves the pages; UsageError for anything else. Raises NotFound for the
    tenant.
    """
    require_address("--exporter", exporter)
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        vms, leases = session.vms(), session.leases()
    if tenant is not None:
        return tenant_targets(vms, leases, tenant, exporter=exporter)
    return host_targets(services.hosts()) + guest_targets(vms, leases)


def host_targets(hosts: Iterable[str]) -> list[TargetGroup]:
    """Return each host as a target to probe; a relabelling rule puts it into `?target=` (docs/monitoring.md)."""
    return [_group(name, {"role": "host", "host": name}) for name in hosts]


def tenant_targets(vms: Iterable[Vm], leases: Sequence[Lease], tenant: str, *, exporter: str) -> list[TargetGroup]:
    """Return a tenant's targets: the exporter's page of its shares, where it has any, and its guests' exporters."""
    own = [one for one in leases if one.tenant == tenant]
    found: list[TargetGroup] = []
    if own:
        page = _group(exporter, {"role": "shares", "tenant": tenant})
        page["labels"]["__metrics_path__"] = f"/metrics/tenants/{tenant}"
        found.append(page)
    return found + guest_targets((vm for vm in vms if vm.request.tenant == tenant), own)


def guest_targets(vms: Iterable[Vm], leases: Sequence[Lease]) -> list[TargetGroup]:
    """Return the guests' exporters that tenants allow, of VMs that run. Several GPUs of a VM are one target."""
    found = []
    for vm in sorted(vms, key=lambda one: (one.request.tenant, one.request.name)):
        if vm.request.guest_metrics is None or vm.state is not VmState.RUNNING:
            continue
        held = [one.share for one in leases if one.vm_uuid == vm.uuid]
        about = {
            "role": "guest",
            "tenant": vm.request.tenant,
            "vm": vm.request.name,
            "host": vm.host,
            "gpu": ",".join(one.gpu for one in held),
            "share": ",".join(one.vfio_device for one in held),
            "profile": ",".join(dict.fromkeys(one.profile for one in held)),
        }
        found.append(_group(vm.request.guest_metrics, about))
    return found


def _group(target: str, about: dict[str, str]) -> TargetGroup:
    return {"targets": [target], "labels": {f"{_META}{name}": value for name, value in about.items()}}
