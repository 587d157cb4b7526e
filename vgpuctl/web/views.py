# SPDX-License-Identifier: Apache-2.0
"""One view for each page: ask a use case, fill a template."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from flask import Blueprint, Response, abort, render_template, request, url_for

from vgpuctl.agent.wire.measures import GPU, HOST, MEASURES, VGPU, VM
from vgpuctl.agent.wire.readings import Measured
from vgpuctl.model.event import EventFilter
from vgpuctl.model.states import StateKind, StateRow
from vgpuctl.scheduler.refusals import summarise
from vgpuctl.usecases.placement.queue import list_queue
from vgpuctl.usecases.placement.shown_reservations import list_reservations
from vgpuctl.usecases.telemetry.count_more import count_more, form_fields, read_request
from vgpuctl.usecases.telemetry.event_page import read_event_page, read_filter
from vgpuctl.usecases.telemetry.fleet_choice import FIELDS, choose, values_of
from vgpuctl.usecases.telemetry.fleet_view import free_profiles, read_fleet_view
from vgpuctl.usecases.telemetry.kept import Kept
from vgpuctl.usecases.telemetry.search_fleet import search_fleet
from vgpuctl.usecases.telemetry.serve_web import DAY_S, Charts, PageSources, read_charts
from vgpuctl.usecases.telemetry.state_view import ROWS_ON_PAGE, state_page, states_of_object, summarise_states
from vgpuctl.usecases.telemetry.tenant_view import read_tenant_view
from vgpuctl.usecases.telemetry.vm_page import SORTS, VMS_ON_PAGE, read_vm_page
from vgpuctl.usecases.telemetry.vm_view import last_events, read_vm_view
from vgpuctl.usecases.tenant.list_tenants import list_tenants
from vgpuctl.web import charts, drawing, page_json
from vgpuctl.web.page_types import (
    CapacityData,
    EventsData,
    FleetData,
    GpuData,
    HostData,
    QueueData,
    SearchData,
    StateData,
    StatesData,
    TenantData,
    TenantsData,
    VmData,
    VmsData,
)

T = TypeVar("T")
_EVENTS = 30
_OF_VM = (("vgpu", "object"), ("vm", "host"))
"""The charts of a VM's page: the kind of object, and what tells several of one chart apart."""
_PERIODS = {"1h": 3600, "1d": DAY_S, "7d": 7 * DAY_S, "90d": 90 * DAY_S}
_KEPT = {kind: [one.name for one in MEASURES if one.of == kind and one.is_kept] for kind in (GPU, VGPU, VM, HOST)}


def pages(sources: PageSources) -> Blueprint:
    """The views of the pages made from these sources."""
    views = Blueprint("pages", __name__)
    services = sources.services
    whole = Kept(lambda: read_fleet_view(sources))
    every_state = Kept(sources.states)

    @views.app_context_processor
    def common() -> dict[str, object]:
        return {
            "periods": list(_PERIODS),
            "draw": charts.draw,
            "segments": drawing.segment_boxes,
            "instances": drawing.instance_boxes,
            "styles": drawing.STYLES,
            "alarm": drawing.alarm,
        }

    @views.get("/")
    def fleet() -> str | Response:
        found, by = whole.get(), request.args.get("by", "")
        wanted = {field: request.args.get(field, "") for field in FIELDS}
        return _answer(
            "fleet.html",
            lambda: FleetData(
                at=found.at,
                totals=found.totals,
                hosts=[page_json.host_json(one) for section in choose(found, wanted, "") for one in section.hosts],
            ),
            fleet=found,
            wanted=wanted,
            by=by if by in FIELDS else "host",
            values=values_of(found),
            sections=choose(found, wanted, by),
            colours=drawing.tenant_styles(found.tenants),
        )

    @views.get("/vms")
    def vms() -> str | Response:
        page = read_vm_page(services, request.args, first=_number("from"))
        return _answer(
            "vms.html",
            lambda: VmsData(first=page.first, total=page.total, vms=[page_json.listed_json(one) for one in page.vms]),
            page=page,
            sorts=SORTS,
            size=VMS_ON_PAGE,
        )

    @views.get("/tenants")
    def tenants() -> str | Response:
        found = list_tenants(services)
        return _answer("tenants.html", lambda: TenantsData(tenants=found), tenants=found)

    @views.get("/queue")
    def queue() -> str | Response:
        settings, waiting = list_queue(services, has_inventory=True)
        booked, now = list_reservations(services, tenant=None, past=False), services.store.now()
        return _answer(
            "queue.html",
            lambda: QueueData(
                policy=settings.policy,
                ageing_s=settings.ageing_s,
                waiting=page_json.waiting_json(waiting),
                reservations=page_json.reservations_json(booked, now),
            ),
            settings=settings,
            waiting=waiting,
            reservations=booked,
            now=now,
        )

    @views.get("/capacity")
    def capacity() -> str | Response:
        wanted = read_request(request.args)
        counted = None if wanted is None else count_more(services, wanted)
        free = free_profiles(whole.get())
        refusals = [] if counted is None else summarise(counted.refusals, is_whole=False)
        return _answer(
            "capacity.html",
            lambda: CapacityData(
                free=free, counted=None if counted is None else page_json.count_json(counted, refusals)
            ),
            free=free,
            counted=counted,
            fields=form_fields(),
            refusals=refusals,
        )

    @views.get("/events")
    def events() -> str | Response:
        page = read_event_page(services, read_filter(services, request.args))
        return _answer(
            "events.html",
            lambda: EventsData(events=[page_json.event_json(one) for one in page.events], older=page.older),
            page=page,
        )

    @views.get("/states")
    def states() -> str | Response:
        found = summarise_states(every_state.get())
        return _answer(
            "states.html", lambda: StatesData(kinds=[page_json.kind_json(one) for one in found]), summaries=found
        )

    @views.get("/states/<name>")
    def state(name: str) -> str | Response:
        wanted = request.args.get("state") or None
        page = _known(state_page(every_state.get(), name, state=wanted, first=_number("from")))
        return _answer(
            "state.html",
            lambda: StateData(
                name=name,
                first=page.first,
                total=page.total,
                rows=[page_json.state_json(page.kind, row) for row in page.rows],
            ),
            page=page,
            size=ROWS_ON_PAGE,
        )

    @views.get("/search")
    def search() -> str | Response:
        query = request.args.get("q", "")
        found = search_fleet(services, query)
        return _answer("search.html", lambda: SearchData(query=query, found=found), query=query, found=found)

    _add_objects(views, sources)
    return views


def _add_objects(views: Blueprint, sources: PageSources) -> None:
    """Add the pages of a single host, GPU, tenant or VM."""
    services = sources.services

    @views.get("/hosts")
    def hosts() -> Response:
        return Response(status=302, headers={"Location": url_for("pages.fleet")})  # it lists the hosts

    @views.get("/hosts/<name>")
    def host(name: str) -> str | Response:
        fleet = read_fleet_view(sources, [_of_inventory(name)])
        found = _known(fleet.host(name))
        drawn = _charts("host", host=name)
        events = last_events(services, EventFilter(host=name), _EVENTS)
        states = _states(("host", "truth"), {"host": name})
        return _answer(
            "host.html",
            lambda: HostData(
                host=page_json.host_json(found),
                vms=[page_json.vm_json(one) for one in found.vms],
                readings=page_json.measured_json(found.measured),
                states=[page_json.state_json(*one) for one in states],
                charts=drawn,
                events=[page_json.event_json(one) for one in events],
            ),
            host=found,
            charts=drawn,
            period=_period(),
            events=events,
            states=states,
            colours=drawing.tenant_styles(fleet.tenants),
        )

    @views.get("/hosts/<name>/gpus/<address>")
    def gpu(name: str, address: str) -> str | Response:
        fleet = read_fleet_view(sources, [_of_inventory(name)])
        found = _known(fleet.host(name))
        one = _known(next((one for one in found.gpus if one.gpu.address == address), None))
        drawn, shares = (
            _charts("gpu", host=name, gpu=address),
            _charts("vgpu", label="vm", host=name, gpu=address),
        )
        states = _states(("gpu",), {"host": name, "gpu": address})
        events = last_events(services, EventFilter(one.subjects), _EVENTS)
        return _answer(
            "gpu.html",
            lambda: GpuData(
                gpu=page_json.gpu_json(name, one),
                health=one.health,
                readings=page_json.measured_json(Measured() if one.readings is None else one.readings.measured),
                promises={lease.vm_uuid: found.promises.get(lease.vm_uuid, ()) for lease in one.leases},
                states=[page_json.state_json(*row) for row in states],
                charts=drawn,
                share_charts=shares,
                events=[page_json.event_json(event) for event in events],
            ),
            host=found,
            gpu=one,
            charts=drawn,
            shares=shares,
            states=states,
            period=_period(),
            events=events,
            colours=drawing.tenant_styles(fleet.tenants),
        )

    @views.get("/tenants/<name>")
    def tenant(name: str) -> str | Response:
        found = _known(read_tenant_view(services, name))
        states, now = _states(("queue", "reservation", "network"), {"tenant": name}), services.store.now()
        return _answer(
            "tenant.html",
            lambda: TenantData(
                tenant=found.tenant,
                vms=[page_json.listed_json(one) for one in found.vms],
                waiting=page_json.waiting_json(found.waiting),
                reservations=page_json.reservations_json(found.reservations, now),
                states=[page_json.state_json(*one) for one in states],
                usage_since=found.usage_since,
                usage=found.usage,
                events=[page_json.event_json(one) for one in found.events],
            ),
            view=found,
            now=now,
            states=states,
        )

    @views.get("/tenants/<tenant>/vms/<name>")
    def vm(tenant: str, name: str) -> str | Response:
        found = _known(read_vm_view(sources, tenant, name))
        shares, drawn = (_charts(kind, label=label, tenant=tenant, vm=name) for kind, label in _OF_VM)
        states = _states(("vm", "lease"), {"tenant": tenant, "vm": name})
        return _answer(
            "vm.html",
            lambda: VmData(
                tenant=tenant,
                name=name,
                listed=None if found.listed is None else page_json.listed_json(found.listed),
                queued_at=None if found.queued is None else found.queued.queued_at,
                queued_reason=None if found.queued is None else found.queued.reason,
                promises=found.promises,
                shares=[page_json.share_json(one.lease, one.measured) for one in found.shares],
                neighbours=[page_json.share_json(one.lease, one.measured) for one in found.neighbours],
                readings=None if found.readings is None else page_json.measured_json(found.readings.measured),
                states=[page_json.state_json(*one) for one in states],
                charts=drawn,
                share_charts=shares,
                events=[page_json.event_json(one) for one in found.events],
            ),
            view=found,
            shares=shares,
            charts=drawn,
            states=states,
            period=_period(),
            now=services.store.now(),
        )

    def _of_inventory(name: str) -> str:
        if name not in services.hosts():
            abort(404)
        return name

    def _states(of: tuple[str, ...], labels: Mapping[str, str]) -> list[tuple[StateKind, StateRow]]:
        return states_of_object(sources.states(of), of, labels)

    def _charts(kind: str, *, label: str = "object", **where: str) -> Charts:
        return read_charts(sources, kind, _KEPT[kind], length_s=_PERIODS[_period()], label=label, **where)


def _answer(template: str, data: Callable[[], Mapping[str, object]], **context: object) -> str | Response:
    """The page, or its data for who asks for JSON."""
    return page_json.response(data()) if page_json.is_wanted() else render_template(template, **context)


def _period() -> str:
    given = request.args.get("period", "")
    return given if given in _PERIODS else "1h"


def _number(name: str) -> int:
    given = request.args.get(name, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0


def _known(found: T | None) -> T:
    if found is None:
        abort(404)
    return found
