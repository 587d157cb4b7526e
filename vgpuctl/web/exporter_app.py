# SPDX-License-Identifier: Apache-2.0
"""The exporter's HTTP interface: metrics, the multi-target probe, service discovery for Prometheus."""

import json
from collections.abc import Callable

from flask import Blueprint, Flask, Response, request

from vgpuctl.errors import NotFound, VgpuctlError
from vgpuctl.usecases.telemetry.list_targets import host_targets, tenant_targets
from vgpuctl.usecases.telemetry.serve_exporter import Exporter
from vgpuctl.web.basic_auth import TENANTS
from vgpuctl.web.server import ApplicationRules


# The kinds of answers of the HTTP interfaces.
def as_text(text: str, status: int = 200) -> Response:
    """Return plain text."""
    return Response(text, status, content_type="text/plain; charset=utf-8")


def as_page(text: str, status: int = 200) -> Response:
    """Return HTML that loads nothing."""
    response = Response(text, status, content_type="text/html; charset=utf-8")
    response.headers["Content-Security-Policy"] = "default-src 'none'"
    return response


def as_json(value: object) -> Response:
    """Return JSON as http_sd wants it: its Content-Type without parameters."""
    return Response(json.dumps(value), content_type="application/json")


EXPORTER = ApplicationRules(knows_tenants=True)
_PAGES_OF_TENANTS = ("exporter.tenant_metrics", "exporter.tenants")
_INDEX = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>vgpuctl exporter</title>
<h1>vgpuctl exporter</h1>
<ul>
<li><a href="/metrics">/metrics</a>: the fleet, the store and the exporter; for a user of tenants their series
<li><a href="/metrics/store">/metrics/store</a>: the store and the exporter
<li>/metrics/tenants/TENANT: the series of one tenant
<li>/probe?target=HOST: what one host measured
<li><a href="/sd/hosts">/sd/hosts</a>: the hosts, for http_sd
<li>/sd/tenants/TENANT: a tenant's targets, for http_sd
<li><a href="/healthz">/healthz</a>: 200 while the exporter works
</ul>
"""


def exporter_app(exporter: Exporter) -> Flask:
    """Return the application that serves one exporter."""
    app = Flask("vgpuctl.exporter", static_folder=None)
    app.before_request(keep_to_tenants)

    @app.get("/")
    def index() -> Response:
        return as_page(_INDEX)

    app.register_blueprint(exporter_views(exporter))
    return app


def keep_to_tenants() -> Response | None:
    """Refuse a user who is bound to tenants everything but the pages of these."""
    tenants = request.environ.get(TENANTS)
    if tenants is None or request.endpoint == "exporter.metrics":
        return None
    if request.endpoint in _PAGES_OF_TENANTS and (request.view_args or {}).get("tenant") in tenants:
        return None
    return as_text(f"only pages of these tenants are for this user: {', '.join(sorted(tenants))}\n", 403)


def exporter_views(exporter: Exporter) -> Blueprint:
    """Return everything that one exporter serves but its first page."""
    views = Blueprint("exporter", __name__)

    def text(page: Callable[[str], tuple[bytes, str]]) -> Response:
        content, content_type = page(request.headers.get("Accept", ""))
        return Response(content, content_type=content_type)

    @views.get("/metrics")
    def metrics() -> Response:
        tenants = request.environ.get(TENANTS)
        return text(exporter.metrics if tenants is None else lambda accept: exporter.tenant_metrics(tenants, accept))

    @views.get("/metrics/store")
    def store() -> Response:
        return text(exporter.store_metrics)

    @views.get("/metrics/tenants/<tenant>")
    def tenant_metrics(tenant: str) -> Response:
        return text(lambda accept: exporter.tenant_metrics([tenant], accept))

    @views.get("/probe")
    def probe() -> Response:
        targets = request.args.getlist("target")
        if len(targets) != 1 or not targets[0]:
            return as_text("give one host: /probe?target=HOST; /sd/hosts lists the hosts\n", 400)
        return text(lambda accept: exporter.host_metrics(targets[0], accept))

    @views.get("/sd/hosts")
    def hosts() -> Response:
        return as_json(host_targets(exporter.hosts()))

    @views.get("/sd/tenants/<tenant>")
    def tenants(tenant: str) -> Response:
        states = exporter.store.states
        if states is None:
            return as_text("the store was not read yet\n", 503)
        return as_json(tenant_targets(states.vms, states.leases, tenant, exporter=request.host))

    @views.get("/healthz")
    def health() -> Response:
        return as_text("ok\n")

    @views.errorhandler(NotFound)
    def not_found(error: NotFound) -> Response:
        return as_text(f"{error.message}\n", 404)

    @views.errorhandler(VgpuctlError)
    def failed(error: VgpuctlError) -> Response:
        return as_text(f"{error.message}\n", 503)

    return views
