# SPDX-License-Identifier: Apache-2.0
"""uncordon-host: a host or GPU takes VMs again."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, say


@click.command("uncordon-host")
@click.argument("host")
@click.option("--gpu", metavar="ADDRESS", help="Uncordon only this GPU, by its PCI address.")
@click.option("--reason", default="", metavar="TEXT", help="Reason, for the event.")
@options.dry_run
@options.one_host
@options.as_json
def command(host: str, gpu: str | None, reason: str, dry_run: bool, as_json: bool, **where: Any) -> None:
    """Let a cordoned host or GPU take VMs again.

    A GPU in quarantine stays there until `release-gpu`.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.maintenance.uncordon_host import uncordon_host

    with services(**where) as opened:
        lifted = uncordon_host(opened, host, gpu=gpu, reason=reason, dry_run=dry_run)
    if as_json:
        print_json({"changed": bool(lifted), "lifted": lifted})
    else:
        outcome = "would take VMs again" if dry_run else "takes VMs again"
        say(f"{host}{f' {gpu}' if gpu else ''}: {outcome if lifted else 'no change'}")
