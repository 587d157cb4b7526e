# SPDX-License-Identifier: Apache-2.0
"""The application of the read-only pages: Flask with its templates, its checks and its views."""

import logging
from urllib.parse import urlencode

from flask import Flask, Response, render_template, request
from werkzeug.exceptions import HTTPException

from vgpuctl import __version__
from vgpuctl.errors import NotFound, Unexpected, UsageError, VgpuctlError
from vgpuctl.quota.resources import format_amount
from vgpuctl.usecases.telemetry.serve_exporter import Exporter
from vgpuctl.usecases.telemetry.serve_web import PageSources
from vgpuctl.web import page_json, wording
from vgpuctl.web.access import PageAccess, guard
from vgpuctl.web.exporter_app import exporter_views
from vgpuctl.web.page_types import PageError
from vgpuctl.web.server import ApplicationRules
from vgpuctl.web.views import pages

_LOGGER = logging.getLogger("vgpuctl.web")
Told = tuple[str, int] | Response
PAGES = ApplicationRules(frozenset({"application/x-www-form-urlencoded"}), has_own_login=True, knows_tenants=True)
"""What the login form sends."""
_NAV = (
    ("/", "Fleet"),
    ("/vms", "VMs"),
    ("/tenants", "Tenants"),
    ("/queue", "Queue"),
    ("/capacity", "Capacity"),
    ("/events", "Events"),
    ("/states", "States"),
)


class _Application(Flask):
    # Every value that a template writes passes through here before it is escaped.
    jinja_options = {"finalize": wording.finalize, "trim_blocks": True, "lstrip_blocks": True}


def make_application(sources: PageSources, access: PageAccess, exporter: Exporter | None = None) -> Flask:
    """The application that serves the pages made from these sources to those whom `access` lets in.

    exporter: serves its metrics too, to the same.
    """
    app = _Application(__name__)
    app.jinja_env.globals.update(
        nav=_NAV,
        version=__version__,
        host_link=wording.host_link,
        gpu_link=wording.gpu_link,
        tenant_link=wording.tenant_link,
        vm_link=wording.vm_link,
        same_page=_same_page,
    )
    app.jinja_env.filters.update(
        mib=wording.mib,
        size=wording.size,
        percent=wording.percent,
        amount=wording.amount,
        title_of=wording.title,
        when=wording.when,
        short_address=wording.short_address,
        quota=format_amount,
        measured_lines=wording.measured_lines,
        zip_with=zip,
        duration=wording.duration,
    )
    guard(app, access)
    app.register_blueprint(pages(sources))
    if exporter is not None:
        app.register_blueprint(exporter_views(exporter))
    app.register_error_handler(HTTPException, _http_problem)
    app.register_error_handler(VgpuctlError, _problem)
    app.register_error_handler(Exception, _unexpected)
    return app


def print_page(sources: PageSources, path: str) -> str:
    """One page as HTML. Raises UsageError for an unknown path, and the error that the page would show."""
    access = PageAccess(None, has_tls=False, is_loopback=True, clock=sources.services.store.now)
    app = make_application(sources, access)
    shown: list[VgpuctlError] = []

    def keep(error: VgpuctlError) -> Told:
        shown.append(error)
        return _problem(error)

    app.register_error_handler(VgpuctlError, keep)
    answer = app.test_client().get(path if path.startswith("/") else f"/{path}")
    if shown and answer.status_code >= 500:
        raise shown[0]
    if shown:
        raise UsageError(f"--print {path!a} is no page: {answer.status}: {shown[0].message}", hint=shown[0].hint)
    if answer.status_code != 200 or answer.mimetype != "text/html":
        raise UsageError(f"--print {path!a} is no page: {answer.status}", hint="for example / or /hosts/HOST")
    return answer.text


def _same_page(**changed: object) -> str:
    """This page with other parameters; an empty one is left out."""
    given = {**request.args.to_dict(), **{name: str(value) for name, value in changed.items()}}
    return f"?{urlencode({name: value for name, value in given.items() if value})}"


def _http_problem(error: HTTPException) -> Told | HTTPException:
    code = error.code or 500
    if code < 400:
        return error
    said = {
        404: "There is no such page, host, GPU, tenant or VM.",
        405: "These pages can only be read.",
        421: "This server does not serve the host name that was asked for.",
    }.get(code, error.description or "The request failed.")
    if page_json.is_wanted():
        return page_json.response(PageError(reference=None, message=said, context=(), hint=None), code)
    return render_template("problem.html", heading=error.name, message=said, hint=None), code


def _problem(error: VgpuctlError) -> Told:
    code = 400 if error.exit_code == 2 else 404 if isinstance(error, NotFound) else 503
    return _told("This cannot be shown", error, code)


def _unexpected(error: Exception) -> Told:
    _LOGGER.error("unexpected error", extra={"fields": {"path": request.path}}, exc_info=True)
    return _told("Unexpected error", Unexpected.of(error, where=f"{request.path}: "), 500)


def _told(heading: str, error: VgpuctlError, code: int) -> Told:
    if page_json.is_wanted():
        return page_json.response(page_json.error_json(error), code)
    return render_template("problem.html", heading=heading, message=error.message, hint=error.hint), code
