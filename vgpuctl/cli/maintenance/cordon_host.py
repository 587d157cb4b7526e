# SPDX-License-Identifier: Apache-2.0
"""cordon-host: no new VM on a host or GPU."""

from typing import Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say


class JsonRestricted(TypedDict):
    """A host, or one of its GPUs, that takes no VM; changed: false if that was so already."""

    changed: bool
    host: str
    gpu: str | None
    reason: str


_JSON: "JsonOutput[JsonRestricted]" = JsonOutput()


@click.command("cordon-host")
@click.argument("host")
@options.only_gpu("Cordon only this GPU, by its PCI address.")
@options.reason("Reason, shown wherever a VM is refused.")
@options.dry_run
@options.one_host
@options.as_json
def command(host: str, gpu: str | None, reason: str, dry_run: bool, as_json: bool, **where: Any) -> None:
    """Take a host or GPU out of placement; its VMs go on. They may be stopped and started.

    Reservations, the queue, gangs and preemption place no VM there either. `uncordon-host` ends it.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.maintenance.cordon_host import cordon_host

    with services(rehearses=dry_run, **where) as opened:
        changed, stored = cordon_host(opened, host, gpu=gpu, reason=reason)
    if as_json:
        _JSON.print({"changed": changed, "host": host, "gpu": gpu, "reason": stored})
    else:
        outcome = "would be cordoned" if dry_run else "cordoned"
        say(f"{host}{f' {gpu}' if gpu else ''}: {outcome if changed else f'no change, it is cordoned: {stored}'}")
