# SPDX-License-Identifier: Apache-2.0
"""One tenant: its VMs, quotas, reservations and queued VMs, and what it used this month. No host is contacted."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.model.event import Event, EventFilter
from vgpuctl.model.reservation import Reservation
from vgpuctl.quota.limits import month_of
from vgpuctl.quota.usage import UsageLine
from vgpuctl.usecases.placement.queue import Waiting, list_queue
from vgpuctl.usecases.placement.shown_reservations import list_reservations
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.vm_view import last_events
from vgpuctl.usecases.tenant.list_tenants import ListedTenant, list_tenants
from vgpuctl.usecases.tenant.show_usage import show_usage
from vgpuctl.usecases.vm.list_vms import ListedVm, list_vms

_EVENTS = 30


@dataclass(frozen=True)
class TenantView:
    """One tenant. usage: since the begin of this month. events: the newest first."""

    tenant: ListedTenant
    vms: tuple[ListedVm, ...]
    waiting: tuple[Waiting, ...]
    reservations: tuple[Reservation, ...]
    usage: tuple[UsageLine, ...]
    usage_since: float
    events: Sequence[Event]


def read_tenant_view(services: Services, name: str) -> TenantView | None:
    """One tenant; None for an unknown name."""
    tenant = next((one for one in list_tenants(services) if one.tenant == name), None)
    if tenant is None:
        return None
    begin, _end = month_of(services.store.now())
    usage = show_usage(services, since=begin, until=None, tenant=name)
    _settings, waiting = list_queue(services, has_inventory=True, tenant=name)
    return TenantView(
        tenant,
        tuple(list_vms(services, tenant=name, host=None)),
        tuple(waiting),
        tuple(list_reservations(services, tenant=name, past=False)),
        usage.lines,
        usage.since,
        last_events(services, EventFilter(tenant=name), _EVENTS),
    )
