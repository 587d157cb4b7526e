# SPDX-License-Identifier: Apache-2.0
"""The types of the JSON of each page. docs/schemas/pages/ has their schemas. Times are seconds since the epoch, UTC.

They have what the page shows and no more: who may read the pages need not be an operator, and requests and events have
parts that no page shows.
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from vgpuctl.model.gpu_map import Closed, GpuMap
from vgpuctl.model.health import HealthFinding
from vgpuctl.model.promise import LastFinding
from vgpuctl.quota.usage import UsageLine
from vgpuctl.usecases.placement.capacity import HostCount
from vgpuctl.usecases.telemetry.fleet_view import FleetTotals, FreeProfile
from vgpuctl.usecases.telemetry.search_fleet import FoundObject
from vgpuctl.usecases.telemetry.serve_web import Charts
from vgpuctl.usecases.telemetry.state_view import ObjectsInState
from vgpuctl.usecases.tenant.list_tenants import ListedTenant


class PageError(TypedDict):
    """An error. reference: its stable name (docs/errors.md), null for one of the protocol, such as an unknown path."""

    reference: str | None
    message: str
    context: Sequence[str]
    hint: str | None


class PageValue(TypedDict):
    """One value of a measure, null where it is no finite number."""

    name: str
    labels: Sequence[str]
    value: float | None


class PageMissing(TypedDict):
    """A measure without a value. word: `not-measurable` or `not-readable`."""

    name: str
    word: str
    reason: str


class PageMeasured(TypedDict):
    """The last readings of one object, in the units that the names tell."""

    values: Sequence[PageValue]
    missing: Sequence[PageMissing]


class PageShare(TypedDict):
    """A share. used_of_promise: ratio of the compute time that is promised. state: of its lease. Null: not measured."""

    host: str
    gpu: str
    device: str
    profile: str
    tenant: str
    vm: str
    state: str
    problem: str | None
    used_of_promise: float | None
    framebuffer_used_bytes: float | None


class PageEvent(TypedDict):
    """An event. changes: the values that changed, in words. by: who changed them; command: with what."""

    at: float
    kind: str
    subject: str
    tenant: str | None
    host: str | None
    detail: str
    changes: Sequence[str]
    by: str
    command: str


class PageState(TypedDict):
    """The state of one object. kind: the metric's name without `vgpuctl_`."""

    kind: str
    labels: Mapping[str, str]
    states: Sequence[str]
    value: float | None
    at: float | None
    text: str


class PageGpu(TypedDict):
    """A GPU. states: as the map filters by them. observed: `present`, `missing`, `unreadable`, null if never seen."""

    host: str
    address: str
    states: Sequence[str]
    observed: str | None
    utilization: float | None
    map: GpuMap
    shares: Sequence[PageShare]


class PageHost(TypedDict):
    """A host. seen: its last answer in words. closed: why it takes no VM. attention: findings, a sentence each."""

    name: str
    state: str
    seen: str
    groups: Sequence[str]
    closed: Closed | None
    problem: str | None
    readings_problem: str | None
    readings_age_s: float | None
    attention: Sequence[str]
    gpus: Sequence[PageGpu]


class FleetData(TypedDict):
    """The map. totals: of the whole fleet; hosts: with the GPUs that were chosen."""

    at: float
    totals: FleetTotals
    hosts: Sequence[PageHost]


class PageVm(TypedDict):
    """A VM as the store has it."""

    tenant: str
    name: str
    uuid: str
    host: str
    domain_name: str
    declared: str
    problem: str | None
    gpus: Sequence[str]
    vcpus: int
    memory_mib: int
    network: str | None
    priority: int
    restart: str
    ends_at: float | None


class PageListedVm(TypedDict):
    """A VM with its last observation. state: in one word; seen: in words, with its age."""

    vm: PageVm
    state: str
    seen: str
    shares: Sequence[PageShare]


class HostData(TypedDict):
    """One host."""

    host: PageHost
    vms: Sequence[PageVm]
    readings: PageMeasured
    states: Sequence[PageState]
    charts: Charts
    events: Sequence[PageEvent]


class GpuData(TypedDict):
    """One GPU. promises: of the VMs that have shares of it, by UUID."""

    gpu: PageGpu
    health: Sequence[HealthFinding]
    readings: PageMeasured
    promises: Mapping[str, Sequence[LastFinding]]
    states: Sequence[PageState]
    charts: Charts
    share_charts: Charts
    events: Sequence[PageEvent]


class VmsData(TypedDict):
    """A part of the VMs that fit. first: number of the first one, from 0."""

    first: int
    total: int
    vms: Sequence[PageListedVm]


class VmData(TypedDict):
    """One VM. listed: null for one that is deleted or waits to be created. queued_at: null if it does not wait."""

    tenant: str
    name: str
    listed: PageListedVm | None
    queued_at: float | None
    queued_reason: str | None
    promises: Sequence[LastFinding]
    shares: Sequence[PageShare]
    neighbours: Sequence[PageShare]
    readings: PageMeasured | None
    states: Sequence[PageState]
    charts: Charts
    share_charts: Charts
    events: Sequence[PageEvent]


class TenantsData(TypedDict):
    """Every tenant."""

    tenants: Sequence[ListedTenant]


class PageWaiting(TypedDict):
    """An entry of the queue. expected_at: null where no declared end tells it."""

    position: int
    tenant: str
    vms: Sequence[str]
    kind: str
    gpus: Sequence[str]
    priority: int
    duration_s: float | None
    queued_at: float
    expected_at: float | None
    reason: str


class PageReservation(TypedDict):
    """A reservation with its present or next window."""

    tenant: str
    name: str
    gpus: Sequence[str]
    host: str
    begin: float
    end: float
    every_s: float | None


class TenantData(TypedDict):
    """One tenant. usage: since usage_since."""

    tenant: ListedTenant
    vms: Sequence[PageListedVm]
    waiting: Sequence[PageWaiting]
    reservations: Sequence[PageReservation]
    states: Sequence[PageState]
    usage_since: float
    usage: Sequence[UsageLine]
    events: Sequence[PageEvent]


class QueueData(TypedDict):
    """The queue and the reservations."""

    policy: str
    ageing_s: float
    waiting: Sequence[PageWaiting]
    reservations: Sequence[PageReservation]


class PageCount(TypedDict):
    """How many VMs of one kind fit: now, beside what is reserved (backfill), and by the hosts alone (hosts_take)."""

    now: int
    backfill: int
    hosts_take: int
    quota: Mapping[str, int]
    free_licences: int | None
    hosts: Sequence[HostCount]
    refusals: Sequence[str]
    not_looked_at: Sequence[str]


class CapacityData(TypedDict):
    """Free shares by profile. counted: null where no kind of VM was asked for."""

    free: Sequence[FreeProfile]
    counted: PageCount | None


class EventsData(TypedDict):
    """A part of the events, the newest first. older: the `before` of the next part, null for the last one."""

    events: Sequence[PageEvent]
    older: int | None


class PageStateKind(TypedDict):
    """A kind of state with the number of objects in each."""

    name: str
    heading: str
    text: str
    objects: int
    states: Sequence[ObjectsInState]


class StatesData(TypedDict):
    """Every kind of state."""

    kinds: Sequence[PageStateKind]


class StateData(TypedDict):
    """A part of the objects of one kind of state."""

    name: str
    first: int
    total: int
    rows: Sequence[PageState]


class SearchData(TypedDict):
    """Found objects."""

    query: str
    found: Sequence[FoundObject]


PAGES: Mapping[str, type] = {
    "fleet": FleetData,
    "host": HostData,
    "gpu": GpuData,
    "vms": VmsData,
    "vm": VmData,
    "tenants": TenantsData,
    "tenant": TenantData,
    "queue": QueueData,
    "capacity": CapacityData,
    "events": EventsData,
    "states": StatesData,
    "state": StateData,
    "search": SearchData,
    "error": PageError,
}
"""By the name of the page's view, the type of its JSON; `error` for every one that cannot be shown."""
