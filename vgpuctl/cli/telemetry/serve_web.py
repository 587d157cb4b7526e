# SPDX-License-Identifier: Apache-2.0
"""web: the read-only pages."""

import contextlib
import ipaddress
from pathlib import Path
from typing import Any

import click

from vgpuctl.cli.frame.ending import serve_until_told, stop_on_signals
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.output import print_raw, say


@click.command("serve web")
@options.listen("127.0.0.1:9636")
@options.web_config
@options.allow_host
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File with the token that readers of the pages have to give.",
)
@options.readings_interval(15.0)
@click.option("--cached", is_flag=True, help="Contact no host: show the store and the kept readings alone.")
@options.history
@options.prometheus
@click.option("--print", "path", metavar="PATH", help="Print one page, such as /, as HTML and exit; no server.")
@options.many_hosts
def command(
    listen: str,
    web_config: Path | None,
    allowed_hosts: tuple[str, ...],
    token_file: Path | None,
    interval_s: float,
    cached: bool,
    history: Path | None,
    prometheus: str | None,
    path: str | None,
    **where: Any,
) -> None:
    """Serve read-only pages of the fleet. They are a map of its GPUs, hosts, VMs, tenants, queue, capacity, events and
    states.

    The pages also work without JavaScript. Unless --cached is given, the hosts are read as `vgpuctl serve exporter`
    reads them: the history is kept, and /metrics is served too. Another address than this machine's loopback needs TLS
    and a login.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.cli.options.listen_address import listen_address
    from vgpuctl.usecases.running.history import PastSource, history_path, require_usable
    from vgpuctl.usecases.telemetry.serve_exporter import Exporter
    from vgpuctl.usecases.telemetry.serve_web import PageSources
    from vgpuctl.web.access import PageAccess, read_token, require_safe
    from vgpuctl.web.application import PAGES, make_application, print_page
    from vgpuctl.web.protection import Protection
    from vgpuctl.web.server import serving

    address, port = listen_address(listen)
    token = None if token_file is None else read_token(token_file)
    protection = Protection(web_config, warn=say, allowed_hosts=allowed_hosts)
    with contextlib.ExitStack() as opened:
        services_ = opened.enter_context(services(**where))
        past = PastSource(history_path(history, where["database"]), prometheus)
        require_usable(past)
        if path is not None:
            print_raw(print_page(PageSources(services_, past), path).encode())
            return
        access = PageAccess(
            token,
            has_tls=protection.context is not None,
            is_loopback=ipaddress.ip_address(address).is_loopback,
            clock=services_.open_store().now,
            config=lambda: protection.config,
            logins=protection.logins,
        )
        require_safe(access, protection, listen)
        stop = stop_on_signals()
        exporter = None
        if not cached:
            exporter = Exporter(
                services_,
                interval_s=interval_s,
                history=past.history,
                certificates=protection.certificates,
                refusals=protection.refusals.counts,
            )
            opened.enter_context(exporter.running())
        sources = PageSources(services_, past) if exporter is None else PageSources(services_, past, exporter.snapshots)
        app = make_application(sources, access, exporter)
        taken = opened.enter_context(serving(app, address, port, protection, takes=PAGES))
        say(f"serving on {'https' if access.has_tls else 'http'}://{listen.rpartition(':')[0]}:{taken}/")
        serve_until_told(stop, services_.store)
    say("stopped")
