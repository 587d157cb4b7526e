# SPDX-License-Identifier: Apache-2.0
"""drain-host: empty a host."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.maintenance.drain_output import line_of, print_drained
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, say

if TYPE_CHECKING:
    from vgpuctl.usecases.maintenance.drain_host import Drained


class JsonDrain(TypedDict):
    """changed: false if the host was drained already and nothing had to leave it. drained: nothing is left on it."""

    changed: bool
    host: str
    drained: bool
    vms: "Sequence[Drained]"


_JSON: "JsonOutput[JsonDrain]" = JsonOutput()


@click.command("drain-host")
@click.argument("host")
@options.reason("Reason, shown wherever a VM is refused.")
@click.option(
    "--stop",
    "stops",
    is_flag=True,
    help="Stop VMs that cannot move, with their shares kept; accept gateways that cannot.",
)
@click.option("--all", "takes_stopped", is_flag=True, help="Move stopped VMs too, for a host that does not come back.")
@click.option("--plan", "--dry-run", "plans", is_flag=True, help="Show what moves where, what stops and what cannot.")
@options.yes
@options.move_way
@options.shutdown_timeout("Seconds for each guest that is stopped to shut down before it is forced off.")
@options.no_drain
@options.one_host
@options.as_json
def command(
    host: str,
    reason: str,
    stops: bool,
    takes_stopped: bool,
    plans: bool,
    yes: bool,
    way: str | None,
    shutdown_timeout_s: float,
    drain_s: float | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Empty a host of gateways, VMs and reservations. A moved VM gets equal GPU shares on another host, and runs on
    meanwhile where both hosts can do that.

    The host is cordoned first. Once no VM runs there, nothing starts there until `uncordon-host`. A VM that cannot move
    runs on, and the host stays cordoned; the same command goes on from there.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.maintenance.drain_host import DrainOptions, Verdict, drain_host, is_drained, plan_drain
    from vgpuctl.usecases.vm.move_vm import MoveWay

    wanted = DrainOptions(stops, takes_stopped, shutdown_timeout_s, drain_s, MoveWay(way or MoveWay.KINDEST))
    with services(**where) as opened:
        if not plans and not yes:
            for one in plan_drain(opened, host, wanted):
                say(line_of(one))
            confirm(f"Drain {host}?")
        was_drained = is_drained(opened, host)
        rows = plan_drain(opened, host, wanted) if plans else drain_host(opened, host, wanted, reason=reason)
        drained = is_drained(opened, host)
    if as_json:
        changed = not was_drained or any(one.verdict in (Verdict.MOVE, Verdict.STOP) for one in rows)
        _JSON.print({"changed": changed, "host": host, "drained": drained, "vms": rows})
    elif not plans:
        say(f"{host}: {'drained' if drained else 'not drained'}")
    cordoned = "would stay cordoned" if plans else "stays cordoned"
    may_stop = not stops and any(one.outcome == "left" for one in rows)
    way = "add --stop to stop VMs that cannot move" if may_stop else "settle what is left, then give this command again"
    hint = f"{way}; the host {cordoned} until `vgpuctl uncordon-host`"
    print_drained(host, rows, as_json=as_json, hint=hint)
