# SPDX-License-Identifier: Apache-2.0
"""eject-iso: take the install media and the answers out of a VM's drives."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.usecases.disk.eject_iso import Ejected


_JSON: "JsonOutput[Ejected]" = JsonOutput()


@click.command("eject-iso")
@click.argument("name")
@options.tenant
@options.one_host
@options.as_json
def command(name: str, tenant: str, as_json: bool, **where: Any) -> None:
    """Eject the install media of a VM and the answers of its installation. Its seed stays in its drive."""
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.disk.eject_iso import eject_iso
    from vgpuctl.usecases.found.find_vm import find_vm

    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        done = eject_iso(opened, vm)
    if as_json:
        _JSON.print(done)
        return
    say(f"{done.vm}: " + ("install media ejected" if done.changed else "no change, it has no install media"))
    for line in done.left:
        say(f"{done.vm}: left in the drive: {line}")
