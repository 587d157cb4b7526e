# SPDX-License-Identifier: Apache-2.0
"""delete-vm: ask, delete each VM, tell."""

from functools import partial
from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.named import find_each
from vgpuctl.cli.support.output import confirm, print_json, say
from vgpuctl.model.plural import counted


@click.command("delete-vm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@options.tenant
@options.yes
@click.option("--if-exists", is_flag=True, help="Ignore VMs that do not exist.")
@options.shutdown_timeout("Seconds for the guest to shut down before it is forced off.", name="timeout", default_s=30.0)
@options.no_drain
@options.dry_run
@options.one_host
@options.as_json
def command(
    names: tuple[str, ...],
    tenant: str,
    yes: bool,
    if_exists: bool,
    timeout_s: float,
    drain_s: float | None,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Delete VMs with their disks and release their devices."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.cluster.leave_cluster import leaving_together
    from vgpuctl.usecases.support.find_vm import find_vm
    from vgpuctl.usecases.vm.delete_vm import delete_vm, refuse_kept_below

    with services(**where) as opened:
        found = find_each(tenant, names, partial(find_vm, opened, tenant), what="VM", if_exists=if_exists)
        for vm, leases in found:
            refuse_kept_below(opened, vm)
            devices = ", ".join(f"{lease.share.profile} on {lease.share.function}" for lease in leases) or "no GPU"
            say(f"{vm.domain_name}: {vm.state} on {vm.host}, {devices}" + ("" if not dry_run else " would be deleted"))
        if found and not dry_run:
            if not yes:
                confirm(f"Delete {counted(len(found), 'VM')} with disks?")
            several = [vm for vm, _leases in found] if len(found) > 1 else []
            with leaving_together(opened, several, "its VM is deleted"):
                for vm, _leases in found:
                    delete_vm(opened, vm, timeout_s=timeout_s, drain_s=drain_s)
    if as_json:
        print_json({"deleted": [] if dry_run else [vm.request.name for vm, _leases in found], "dry_run": dry_run})
