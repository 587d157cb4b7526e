# SPDX-License-Identifier: Apache-2.0
"""controller: the process that serves the queue."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.frame.ending import stop_on_signals
from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import SecondsRange
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.usecases.operate.serve_queue import Served


_JSON: "JsonOutput[Sequence[Served]]" = JsonOutput()


@click.command("controller")
@click.option("--once", is_flag=True, help="Run one round, then exit. No layout is compared in it.")
@click.option(
    "--interval",
    "interval_s",
    type=SecondsRange(0.1, 3600),
    default=10.0,
    show_default=True,
    help="Seconds between rounds.",
)
@options.shutdown_timeout("Seconds for a VM that has to end to shut down before it is forced off.")
@options.many_hosts
@options.as_json
def command(once: bool, interval_s: float, shutdown_timeout_s: float, as_json: bool, **where: Any) -> None:
    """Watch hosts, start queued VMs that fit, stop VMs whose time is over. It runs until interrupted. The time of a VM
    is what --for declared.

    It keeps one connection to each of its hosts and records within 30 seconds each change of their power, boot,
    libvirtd, VMs, shares, GPUs and layout. Each change is an event. An inventory that was changed is read again.

    Several controllers may share one store: they divide the hosts, and take over those of a controller that ended
    within a minute. Each may be killed at any moment without loss.
    SIGTERM and Ctrl-C end it after the VM in progress.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.operate.controller import run, run_once

    def tell(served: Sequence["Served"]) -> None:
        for one in served:
            if not one.outcome.startswith("waits"):
                say(f"{one.name}: {one.outcome}")

    with services(**where) as opened:
        if once:
            served = run_once(opened, shutdown_timeout_s=shutdown_timeout_s)
            if as_json:
                _JSON.print(served)
            else:
                for one in served:
                    say(f"{one.name}: {one.outcome}")
            return
        stop = stop_on_signals()
        say(f"watching the hosts, and serving the queue every {interval_s:g} s")
        run(opened, stop, interval_s=interval_s, shutdown_timeout_s=shutdown_timeout_s, tell=tell)
        say("stopped")
