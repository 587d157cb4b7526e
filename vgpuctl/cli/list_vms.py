# SPDX-License-Identifier: Apache-2.0
"""list-vms: the store's VMs; no host is contacted."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli import options
from vgpuctl.cli.output import print_json, print_table

if TYPE_CHECKING:
    from vgpuctl.model.vm import Vm


@click.command("list-vms")
@options.tenant_filter
@click.option("--host", metavar="NAME", help="Only VMs on this host.")
@options.database
@options.as_json
def command(tenant: str | None, host: str | None, database: str | None, as_json: bool) -> None:
    """List the VMs of the store with their GPU slices."""
    from vgpuctl.cli.services import services
    from vgpuctl.usecases.vms import list_vms

    with services(database=database) as opened:
        vms = list_vms(opened, tenant=tenant, host=host)
    if as_json:
        print_json([{"vm": vm, "leases": leases} for vm, leases in vms])
        return
    from vgpuctl.model.units import format_mib

    print_table(
        ["TENANT", "VM", "STATE", "HOST", "VCPUS", "MEMORY", "GPU SLICES"],
        [
            (
                vm.request.tenant,
                vm.request.name,
                vm.state + (f": {vm.problem}" if vm.problem else "") + _notice(vm),
                vm.host,
                vm.request.vcpus,
                format_mib(vm.request.memory_mib),
                ", ".join(f"{lease.slice.profile} {lease.slice.function}" for lease in leases) or "-",
            )
            for vm, leases in vms
        ],
        empty="no VM yet: create one with `vgpuctl create-vm`",
    )


def _notice(vm: "Vm") -> str:
    from vgpuctl.model.times import format_time_to_second

    if vm.notice is None:
        return ""
    return f", is preempted by {vm.notice.cause} at {format_time_to_second(vm.notice.at)}"
