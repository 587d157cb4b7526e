# SPDX-License-Identifier: Apache-2.0
"""restart-vm: restart a VM."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json


@click.command("restart-vm")
@click.argument("name")
@options.tenant
@options.shutdown_timeout("Seconds for the guest to shut down before it is forced off.", name="timeout", default_s=60.0)
@options.no_drain
@options.one_host
@options.as_json
def command(name: str, tenant: str, timeout_s: float, drain_s: float | None, as_json: bool, **where: Any) -> None:
    """Stop a VM and start it again with the GPU shares that it has; a stopped one is started.

    It gets everything that waits for its next start, as devices that were attached while it ran. A guest that reboots
    by itself, or `reset-vm`, keeps its devices as they are.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.support.find_vm import find_vm
    from vgpuctl.usecases.vm.restart_vm import restart_vm

    with services(**where) as opened:
        vm = restart_vm(opened, find_vm(opened, tenant, name)[0], timeout_s=timeout_s, drain_s=drain_s)
    if as_json:
        print_json({"changed": True, "vm": vm})
