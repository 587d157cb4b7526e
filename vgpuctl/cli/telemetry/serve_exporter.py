# SPDX-License-Identifier: Apache-2.0
"""serve exporter: the process that Prometheus scrapes."""

from pathlib import Path
from typing import Any

import click

from vgpuctl.cli.frame.ending import serve_until_told, stop_on_signals
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.output import print_raw, say


@click.command("serve exporter")
@options.listen("127.0.0.1:9635")
@options.readings_interval(15.0)
@options.history
@options.web_config
@options.allow_host
@click.option("--insecure-listen", is_flag=True, help="Allow an address that others reach without TLS and a login.")
@click.option(
    "--store-only", is_flag=True, help="Serve the store's states alone, for hosts that write their readings themselves."
)
@click.option("--once", is_flag=True, help="Read every host once, print the metrics and exit; no server, no history.")
@options.many_hosts
def command(
    listen: str,
    interval_s: float,
    history: Path | None,
    web_config: Path | None,
    allowed_hosts: tuple[str, ...],
    insecure_listen: bool,
    store_only: bool,
    once: bool,
    **where: Any,
) -> None:
    """Serve the readings of all hosts and the store's states to Prometheus. It reads all hosts again and again and
    keeps the history of readings, until interrupted.

    A scrape contacts no host: it gets the last readings with their age. /metrics has the whole fleet, the store's
    states and the exporter itself; /probe?target=HOST one host; /sd/hosts and /sd/tenants/TENANT are for http_sd.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.cli.options.listen_address import listen_address
    from vgpuctl.usecases.running.history import history_path
    from vgpuctl.usecases.telemetry.serve_exporter import Exporter
    from vgpuctl.web.exporter_app import EXPORTER, exporter_app
    from vgpuctl.web.protection import Protection, refuse_unprotected
    from vgpuctl.web.server import serving

    address, port = listen_address(listen)
    if once:
        with services(**where) as opened:
            path = history_path(history, where["database"])
            exporter = Exporter(opened, interval_s=interval_s, history=path, store_only=store_only)
            exporter.read_once()
            print_raw(exporter.metrics("")[0])
        return
    protection = Protection(web_config, warn=say, allowed_hosts=allowed_hosts)
    refuse_unprotected(address, protection, is_allowed=insecure_listen)
    stop = stop_on_signals()
    with services(**where) as opened:
        exporter = Exporter(
            opened,
            interval_s=interval_s,
            history=history_path(history, where["database"]),
            certificates=protection.certificates,
            refusals=protection.refusals.counts,
            store_only=store_only,
        )
        app = exporter_app(exporter)
        with exporter.running(), serving(app, address, port, protection, takes=EXPORTER) as taken:
            scheme = "http" if protection.context is None else "https"
            say(f"serving on {scheme}://{listen.rpartition(':')[0]}:{taken}/metrics")
            serve_until_told(stop, opened.store)
    say("stopped")
