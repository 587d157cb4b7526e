# SPDX-License-Identifier: Apache-2.0
"""rename-vm: rename a VM that is off."""

from typing import Any

import click

from vgpuctl.cli.forms.vm_selection import JsonVmChange
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

_JSON: "JsonOutput[JsonVmChange]" = JsonOutput()


@click.command("rename-vm")
@click.argument("name")
@click.argument("new_name", metavar="NEW-NAME")
@options.tenant
@options.one_host
@options.as_json
def command(name: str, new_name: str, tenant: str, as_json: bool, **where: Any) -> None:
    """Rename a VM that is off. Its floating IP, port forwards and load balancers follow.

    Its UUID, shares, disks and addresses stay, and so does the hostname in its guest. Usage and events of the time
    before have the old name.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.found.find_vm import find_vm
    from vgpuctl.usecases.vm.rename_vm import rename_vm

    with services(**where) as opened:
        vm, changed = rename_vm(opened, find_vm(opened, tenant, name)[0], new_name)
        if not changed:
            say(f"{vm.printed_name}: no change, that is its name")
    if as_json:
        _JSON.print({"changed": changed, "vm": vm})
