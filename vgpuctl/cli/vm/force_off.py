# SPDX-License-Identifier: Apache-2.0
"""force-off: force a VM off."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, say


@click.command("force-off")
@click.argument("name")
@options.tenant
@options.one_host
@options.as_json
def command(name: str, tenant: str, as_json: bool, **where: Any) -> None:
    """Force a VM off, without asking its guest; its GPU shares are kept for its next start.

    Data that the guest has not written is lost, as when a machine's plug is pulled.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.support.find_vm import find_vm
    from vgpuctl.usecases.vm.force_off import force_off

    with services(**where) as opened:
        vm, changed = force_off(opened, find_vm(opened, tenant, name)[0])
        if not changed:
            say(f"{vm.domain_name}: no change, it is stopped")
    if as_json:
        print_json({"changed": changed, "vm": vm})
