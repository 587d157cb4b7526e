# SPDX-License-Identifier: Apache-2.0
"""list-snapshots: the snapshots of a VM's disks."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.listing import Column, Listing, ListOutput
from vgpuctl.cli.support.state_colours import colour_of_state

if TYPE_CHECKING:
    from vgpuctl.usecases.disk.list_snapshots import ListedSnapshot


def _state(one: "ListedSnapshot") -> str:
    return "whole" if one.is_whole else "cut short"


_LISTING: "Listing[ListedSnapshot, ListedSnapshot]" = Listing(
    columns=(
        Column("SNAPSHOT", lambda one: one.name),
        Column("DISKS", lambda one: ", ".join(one.disks), drops=1),
        Column("STATE", _state, colour=lambda one: colour_of_state(_state(one))),
    ),
    name=lambda one: one.name,
    in_order=True,
    json=lambda one: one,
    empty="the VM has no snapshot: take one with `vgpuctl create-snapshot`",
)


@click.command("list-snapshots")
@click.argument("name")
@options.tenant
@options.database
@_LISTING.options
def command(name: str, tenant: str, database: str | None, output: ListOutput) -> None:
    """List the snapshots of the disks of the VM NAME, oldest first. The first disk is shown as `-`."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.disk.list_snapshots import list_snapshots
    from vgpuctl.usecases.support.find_vm import find_vm

    with services(database=database) as opened:
        vm, _ = find_vm(opened, tenant, name)
        _LISTING.show(output, lambda: list_snapshots(opened, vm))
