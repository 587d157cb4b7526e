# SPDX-License-Identifier: Apache-2.0
"""set-console: what the console of a VM shows from its next start on."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.model.display import ConsolePicture

if TYPE_CHECKING:
    from vgpuctl.model.display import DisplayRequest


class JsonConsoleChange(TypedDict):
    """pending_restart: it takes effect at the next start."""

    changed: bool
    pending_restart: bool
    vm: str
    display: "DisplayRequest"


_JSON: "JsonOutput[JsonConsoleChange]" = JsonOutput()


@click.command("set-console")
@click.argument("name")
@click.argument("console", type=click.Choice([str(one) for one in ConsolePicture]))
@options.tenant
@options.dry_run
@options.one_host
@options.as_json
def command(name: str, console: str, tenant: str, dry_run: bool, as_json: bool, **where: Any) -> None:
    """Change what the console of a VM shows from its next start on. It shows the vGPU's picture, that of an emulated
    adapter, or none.

    vgpu makes the vGPU the guest's only and primary adapter; install the guest and its driver with emulated before.
    It takes effect at the next start, by `vgpuctl restart-vm` for example. A reboot inside the guest does not suffice.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.display.set_console import set_console
    from vgpuctl.usecases.found.find_vm import find_vm

    with services(rehearses=dry_run, **where) as opened:
        vm, leases = find_vm(opened, tenant, name)
        done = set_console(opened, vm, leases, ConsolePicture(console))
    display = done.vm.request.display
    if as_json:
        _JSON.print({"changed": done.changed, "pending_restart": done.is_pending, "vm": name, "display": display})
        return
    if not done.changed:
        say(f"{vm.printed_name}: no change, its console is {console}")
        return
    say(f"{vm.printed_name}: {'would show' if dry_run else 'shows'} {console} from its next start on")
    if done.is_pending:
        say(f"it runs as before until `vgpuctl restart-vm {tenant}/{name}`")
