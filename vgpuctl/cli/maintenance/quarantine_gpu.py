# SPDX-License-Identifier: Apache-2.0
"""quarantine-gpu: a suspect GPU is given to nobody."""

from typing import Any

import click

from vgpuctl.cli.maintenance.cordon_host import JsonRestricted
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

_JSON: "JsonOutput[JsonRestricted]" = JsonOutput()


@click.command("quarantine-gpu")
@options.gpu_of_host("address")
@options.reason("Reason, shown wherever a VM is refused.")
@options.dry_run
@options.one_host
@options.as_json
def command(host: str, address: str, reason: str, dry_run: bool, as_json: bool, **where: Any) -> None:
    """Put a GPU or VF in quarantine; no VM starts on it. It is named by its PCI address, and stays there until
    `unquarantine-gpu`.

    VMs that run on it go on. The quarantine of a GPU follows its UUID to another slot or host.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.maintenance.quarantine_gpu import quarantine_gpu

    with services(rehearses=dry_run, **where) as opened:
        changed, stored = quarantine_gpu(opened, host, address, reason=reason)
    if as_json:
        _JSON.print({"changed": changed, "host": host, "gpu": address, "reason": stored})
    else:
        outcome = "would be in quarantine" if dry_run else "in quarantine"
        say(f"{host} {address}: {outcome if changed else f'no change, it is in quarantine: {stored}'}")
