# SPDX-License-Identifier: Apache-2.0
"""controller: the process that serves the queue."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.frame.ending import stop_on_signals
from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.usecases.operate.serve_queue import Served


_JSON: "JsonOutput[Sequence[Served]]" = JsonOutput()


@click.command("controller")
@click.option("--once", is_flag=True, help="Run one round, then exit. No layout is compared in it.")
@options.seconds("interval", 10.0, "Seconds between rounds.", least=0.1)
@options.shutdown_timeout("Seconds for a VM that has to end to shut down before it is forced off.")
@click.option(
    "--defrag",
    "makes_room",
    is_flag=True,
    help="Move VMs live to make room for the first VM of the queue that has none.",
)
@click.option(
    "--defrag-moves-per-hour",
    "moves_per_hour",
    type=WholeRange(1, 1000),
    default=4,
    show_default=True,
    help="With --defrag, most moves that controllers begin in an hour.",
)
@click.option(
    "--defrag-window",
    "window",
    metavar="FROM-TO",
    help="With --defrag, begin moves in this time of the day only, in UTC: 22:00-06:00.  [default: always]",
)
@click.option(
    "--tune",
    "kinds",
    metavar="KINDS",
    help="Try advice of these kinds, one change at a time: power-limit,rebalance (docs/advice.md).  [default: none]",
)
@options.seconds(
    "tune-watch",
    1800.0,
    "With --tune, seconds for which a change is watched before it is kept.",
    least=600,
    most=86_400,
)
@options.history
@options.prometheus
@options.many_hosts
@options.as_json
def command(
    once: bool,
    interval_s: float,
    shutdown_timeout_s: float,
    makes_room: bool,
    moves_per_hour: int,
    window: str | None,
    kinds: str | None,
    tune_watch_s: float,
    as_json: bool,
    **where: Any,
) -> None:
    """Watch hosts, start queued VMs that fit, stop VMs whose time is over. It runs until interrupted. The time of a VM
    is what --for declared.

    It keeps one connection to each of its hosts and records within 30 seconds each change of their power, boot,
    libvirtd, VMs, shares, GPUs and layout. Each change is an event. An inventory that was changed is read again.

    Several controllers may share one store: they divide the hosts, and take over those of a controller that ended
    within a minute. Each may be killed at any moment without loss.
    SIGTERM and Ctrl-C end it after the VM in progress.

    With --defrag a round may move one VM, live only, and none while another run moves a VM.

    With --tune it tries what `vgpuctl advise` recommends, and compares the VMs that it touches with what they were
    before. A change that made one worse, or of which that is not known, is rolled back.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.times import parse_window
    from vgpuctl.scheduler.advice.tunable import parse_kinds
    from vgpuctl.usecases.operate.controller import run, run_once
    from vgpuctl.usecases.operate.defrag_for_queue import QueueDefrag
    from vgpuctl.usecases.telemetry.tune import Tuner

    tuner = Tuner(() if kinds is None else parse_kinds(kinds), tune_watch_s)
    room = QueueDefrag(moves_per_hour, parse_window(window or "00:00-24:00", what="--defrag-window"))

    def tell(served: Sequence["Served"]) -> None:
        for one in served:
            if not one.outcome.startswith("waits"):
                say(f"{one.name}: {one.outcome}")

    with services(**where) as opened:
        if once:
            served = run_once(
                opened, shutdown_timeout_s=shutdown_timeout_s, room=room if makes_room else None, tune=tuner.round
            )
            if as_json:
                _JSON.print(served)
            else:
                for one in served:
                    say(f"{one.name}: {one.outcome}")
            return
        stop = stop_on_signals()
        say(f"watching the hosts, and serving the queue every {interval_s:g} s")
        run(
            opened,
            stop,
            interval_s=interval_s,
            shutdown_timeout_s=shutdown_timeout_s,
            tell=tell,
            room=room if makes_room else None,
            tune=tuner.round,
        )
        say("stopped")
