# SPDX-License-Identifier: Apache-2.0
"""reset-vm: reset a running VM."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json


@click.command("reset-vm")
@click.argument("name")
@options.tenant
@options.one_host
@options.as_json
def command(name: str, tenant: str, as_json: bool, **where: Any) -> None:
    """Reset a running VM, as the reset button of a machine does; its guest is not asked.

    QEMU keeps running, and its devices stay as they are; `restart-vm` applies what waits for a start.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.support.find_vm import find_vm
    from vgpuctl.usecases.vm.reset_vm import reset_vm

    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        reset_vm(opened, vm)
    if as_json:
        print_json({"changed": True, "vm": vm})
