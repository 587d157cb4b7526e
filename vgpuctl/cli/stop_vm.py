# SPDX-License-Identifier: Apache-2.0
"""stop-vm: stop a running VM."""

from typing import Any

import click

from vgpuctl.cli import options
from vgpuctl.cli.output import print_json, say


@click.command("stop-vm")
@click.argument("name")
@options.tenant
@click.option(
    "--hold",
    type=click.Choice(["keep", "release"]),
    default="keep",
    show_default=True,
    help="Keep the GPU slices for the next start, or release them to the pool.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, 3600),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the guest to shut down before the plug is pulled.",
)
@options.inventory
@options.database
@options.ssh
@options.as_json
def command(name: str, tenant: str, hold: str, timeout_s: float, as_json: bool, **where: Any) -> None:
    """Stop a VM and keep or release its GPU slices."""
    from vgpuctl.cli.services import services
    from vgpuctl.model.vm import Hold
    from vgpuctl.usecases.stop_vm import stop_vm
    from vgpuctl.usecases.vms import find_vm

    with services(**where) as opened:
        vm, changed = stop_vm(opened, find_vm(opened, tenant, name)[0], hold=Hold(hold), timeout_s=timeout_s)
        if not changed:
            say(f"{vm.domain_name}: no change, it is stopped")
    if as_json:
        print_json({"changed": changed, "vm": vm})
