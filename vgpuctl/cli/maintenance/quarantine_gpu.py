# SPDX-License-Identifier: Apache-2.0
"""quarantine-gpu: a suspect GPU is given to nobody."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.maintenance.cordon_host import JsonRestricted
from vgpuctl.cli.maintenance.drain_output import line_of, print_drained
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, say

if TYPE_CHECKING:
    from vgpuctl.usecases.maintenance.drain_host import Drained


class JsonEvacuated(JsonRestricted):
    """vms: what became of the VMs on the GPU."""

    vms: "Sequence[Drained]"


_JSON: "JsonOutput[JsonRestricted | JsonEvacuated]" = JsonOutput()


@click.command("quarantine-gpu")
@options.gpu_of_host("address")
@options.reason("Reason, shown wherever a VM is refused.")
@click.option("--evacuate", "evacuates", is_flag=True, help="Give its VMs another GPU, on their host or another one.")
@options.yes
@options.shutdown_timeout("Seconds for each guest that is stopped to shut down before it is forced off.")
@options.no_drain
@options.dry_run
@options.one_host
@options.as_json
def command(
    host: str,
    address: str,
    reason: str,
    evacuates: bool,
    yes: bool,
    shutdown_timeout_s: float,
    drain_s: float | None,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Put a GPU or VF in quarantine; no VM starts on it. It is named by its PCI address, and stays there until
    `unquarantine-gpu`.

    VMs that run on it go on. The quarantine of a GPU follows its UUID to another slot or host.

    --evacuate gives its running VMs another GPU, also of one that was in quarantine before. Each goes in the kindest
    way that is possible: live to another host; suspended, and resumed with another card of its host; restarted with
    one; or cold to another host. Exit code 10 means that some are left; they run on.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.maintenance.drain_host import DrainOptions, Verdict, as_planned
    from vgpuctl.usecases.maintenance.evacuate_gpu import evacuate_gpu
    from vgpuctl.usecases.maintenance.quarantine_gpu import quarantine_gpu

    wanted = DrainOptions(timeout_s=shutdown_timeout_s, drain_s=drain_s)
    rows: Sequence[Drained] = ()
    with services(rehearses=dry_run, **where) as opened:
        if evacuates and not (dry_run or yes):
            with opened.rehearsed() as rehearsed:
                quarantine_gpu(rehearsed, host, address, reason=reason, is_evacuated=True)
                for one in as_planned(evacuate_gpu(rehearsed, host, address, wanted, reason=reason)):
                    say(line_of(one))
            confirm(f"Put {host} {address} in quarantine and evacuate it?")
        changed, stored = quarantine_gpu(opened, host, address, reason=reason, is_evacuated=evacuates)
        if evacuates:
            done = evacuate_gpu(opened, host, address, wanted, reason=stored)
            rows = as_planned(done) if dry_run else done
    changed_any = changed or any(one.verdict is Verdict.MOVE for one in rows)
    if as_json and evacuates:
        _JSON.print({"changed": changed_any, "host": host, "gpu": address, "reason": stored, "vms": rows})
    elif as_json:
        _JSON.print({"changed": changed, "host": host, "gpu": address, "reason": stored})
    else:
        outcome = "would be in quarantine" if dry_run else "in quarantine"
        say(f"{host} {address}: {outcome if changed else f'no change, it is in quarantine: {stored}'}")
    if evacuates:
        hint = "they run on there; see the reasons, then give the command again"
        print_drained(f"{host} {address}", rows, as_json=as_json, hint=hint, empty=f"no VM is on {host} {address}")
