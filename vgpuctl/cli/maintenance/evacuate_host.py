# SPDX-License-Identifier: Apache-2.0
"""evacuate-host: the VMs of a dead host start elsewhere."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.maintenance.drain_output import print_drained
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, say

if TYPE_CHECKING:
    from vgpuctl.usecases.maintenance.drain_host import Drained


class JsonEvacuation(TypedDict):
    """fenced: the host is out of service; false with --plan."""

    host: str
    fenced: bool
    vms: "Sequence[Drained]"


_JSON: "JsonOutput[JsonEvacuation]" = JsonOutput()


@click.command("evacuate-host")
@click.argument("host")
@click.option("--fenced", "is_dead", is_flag=True, help="Say that the host is off, instead of its fencing command.")
@options.reason("Reason, for the events.")
@click.option("--plan", "--dry-run", "plans", is_flag=True, help="Show what starts where and what is lost.")
@options.yes
@options.one_host
@options.as_json
def command(host: str, is_dead: bool, reason: str, plans: bool, yes: bool, as_json: bool, **where: Any) -> None:
    """Fence a dead host, then start its VMs on others. They get equal GPU shares, where their disks are on shared
    storage.

    The host must be off: vgpuctl runs its `vgpu_fencing` command of the inventory, or believes --fenced. A VM whose
    data was on the host itself is reported as lost, and is not created again. The host is trusted again by
    `uncordon-host`.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.maintenance.evacuate_host import evacuate_host, plan_evacuation

    with services(**where) as opened:
        if not plans and not yes:
            for one in plan_evacuation(opened, host, is_dead=is_dead):
                say(f"{one.subject}: {one.verdict} {one.to or ''} {one.reason or ''}".rstrip())
            confirm(f"Fence {host} and start its VMs elsewhere?")
        if plans:
            rows = plan_evacuation(opened, host, is_dead=is_dead)
        else:
            rows = evacuate_host(opened, host, is_dead=is_dead, reason=reason)
    if as_json:
        _JSON.print({"host": host, "fenced": not plans, "vms": rows})
    print_drained(host, rows, as_json=as_json, hint="what is left waits for the host, or `vgpuctl forget-host` ends it")
