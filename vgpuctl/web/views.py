# SPDX-License-Identifier: Apache-2.0
"""One view for each page: ask a use case, fill a template."""

from collections.abc import Mapping
from typing import TypeVar

from flask import Blueprint, abort, render_template, request

from vgpuctl.agent.wire.measures import GPU, HOST, MEASURES, VGPU, VM
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
from vgpuctl.usecases.telemetry.state_view import ROWS_ON_PAGE, state_page, states_of_object, summarise_states
from vgpuctl.usecases.telemetry.tenant_view import read_tenant_view
from vgpuctl.usecases.telemetry.vm_page import SORTS, VMS_ON_PAGE, read_vm_page
from vgpuctl.usecases.telemetry.vm_view import last_events, read_vm_view
from vgpuctl.usecases.telemetry.web import DAY_S, Charts, PageSources, read_charts
from vgpuctl.usecases.tenant.list_tenants import list_tenants
from vgpuctl.web import charts, drawing

T = TypeVar("T")
_EVENTS = 30
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
    def fleet() -> str:
        found, by = whole.get(), request.args.get("by", "")
        wanted = {field: request.args.get(field, "") for field in FIELDS}
        return render_template(
            "fleet.html",
            fleet=found,
            wanted=wanted,
            by=by if by in FIELDS else "host",
            values=values_of(found),
            sections=choose(found, wanted, by),
            colours=drawing.tenant_styles(found.tenants),
        )

    @views.get("/hosts/<name>")
    def host(name: str) -> str:
        fleet = read_fleet_view(sources, [_of_inventory(name)])
        found = _known(fleet.host(name))
        drawn = _charts("host", host=name)
        events = last_events(services, EventFilter(host=name), _EVENTS)
        states = _states(("host", "truth"), {"host": name})
        return render_template(
            "host.html",
            host=found,
            charts=drawn,
            period=_period(),
            events=events,
            states=states,
            colours=drawing.tenant_styles(fleet.tenants),
        )

    @views.get("/hosts/<name>/gpus/<address>")
    def gpu(name: str, address: str) -> str:
        fleet = read_fleet_view(sources, [_of_inventory(name)])
        found = _known(fleet.host(name))
        one = _known(next((one for one in found.gpus if one.gpu.address == address), None))
        return render_template(
            "gpu.html",
            host=found,
            gpu=one,
            charts=_charts("gpu", host=name, gpu=address),
            shares=_charts("vgpu", label="vm", host=name, gpu=address),
            states=_states(("gpu",), {"host": name, "gpu": address}),
            period=_period(),
            events=last_events(services, EventFilter(one.subjects), _EVENTS),
            colours=drawing.tenant_styles(fleet.tenants),
        )

    @views.get("/vms")
    def vms() -> str:
        page = read_vm_page(services, request.args, first=_number("from"))
        return render_template("vms.html", page=page, sorts=SORTS, size=VMS_ON_PAGE)

    @views.get("/tenants")
    def tenants() -> str:
        return render_template("tenants.html", tenants=list_tenants(services))

    @views.get("/tenants/<name>")
    def tenant(name: str) -> str:
        found = _known(read_tenant_view(services, name))
        states = _states(("queue", "reservation", "network"), {"tenant": name})
        return render_template("tenant.html", view=found, now=services.store.now(), states=states)

    @views.get("/tenants/<tenant>/vms/<name>")
    def vm(tenant: str, name: str) -> str:
        found = _known(read_vm_view(sources, tenant, name))
        uuid = "" if found.listed is None else found.listed.vm.uuid
        return render_template(
            "vm.html",
            view=found,
            shares=_charts("vgpu", tenant=tenant, vm=name),
            charts=_charts("vm", object=uuid),
            states=_states(("vm", "lease"), {"tenant": tenant, "vm": name}),
            period=_period(),
            now=services.store.now(),
        )

    @views.get("/queue")
    def queue() -> str:
        settings, waiting = list_queue(services, has_inventory=True)
        booked = list_reservations(services, tenant=None, past=False)
        return render_template(
            "queue.html", settings=settings, waiting=waiting, reservations=booked, now=services.store.now()
        )

    @views.get("/capacity")
    def capacity() -> str:
        wanted = read_request(request.args)
        counted = None if wanted is None else count_more(services, wanted)
        return render_template(
            "capacity.html",
            free=free_profiles(whole.get()),
            counted=counted,
            fields=form_fields(),
            refusals=[] if counted is None else summarise(counted.refusals, is_whole=False),
        )

    @views.get("/events")
    def events() -> str:
        return render_template("events.html", page=read_event_page(services, read_filter(services, request.args)))

    @views.get("/states")
    def states() -> str:
        return render_template("states.html", summaries=summarise_states(every_state.get()))

    @views.get("/states/<name>")
    def state(name: str) -> str:
        wanted = request.args.get("state") or None
        page = _known(state_page(every_state.get(), name, state=wanted, first=_number("from")))
        return render_template("state.html", page=page, size=ROWS_ON_PAGE)

    @views.get("/search")
    def search() -> str:
        query = request.args.get("q", "")
        return render_template("search.html", query=query, found=search_fleet(services, query))

    def _of_inventory(name: str) -> str:
        if name not in services.hosts():
            abort(404)
        return name

    def _states(of: tuple[str, ...], labels: Mapping[str, str]) -> list[tuple[StateKind, StateRow]]:
        return states_of_object(sources.states(of), of, labels)

    def _charts(kind: str, *, label: str = "object", **where: str) -> Charts:
        return read_charts(sources, kind, _KEPT[kind], length_s=_PERIODS[_period()], label=label, **where)

    return views


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
