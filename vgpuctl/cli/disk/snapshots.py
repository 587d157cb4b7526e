# SPDX-License-Identifier: Apache-2.0
"""create-, list-, revert- and delete-snapshot: snapshots of a VM's disks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.stored_kind import JsonDeletions, StoredKind, deletions_json, if_exists
from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, say
from vgpuctl.cli.shown.state_colours import colour_of_state

if TYPE_CHECKING:
    from vgpuctl.usecases.disk.snapshots import ListedSnapshot, SnapshotChange
    from vgpuctl.usecases.running.services import Services


_TAKEN = {
    True: "taken; the guest's agent froze its file systems meanwhile",
    False: "taken; its file systems were not frozen: after a revert they are as after a power failure",
    None: "taken",
}
_CHANGE: "JsonOutput[SnapshotChange]" = JsonOutput(("create-", "revert-"))
_DELETION: "JsonOutput[JsonDeletions]" = JsonOutput(("delete-",))


@click.command("create-snapshot")
@click.argument("name")
@click.argument("snapshot")
@click.option(
    "--quiesce/--no-quiesce",
    default=None,
    help="The guest's agent must, or must not, freeze its file systems meanwhile.  [default: it does if it answers]",
)
@options.tenant
@options.one_host
@options.as_json
def create_snapshot(name: str, snapshot: str, quiesce: bool | None, tenant: str, as_json: bool, **where: Any) -> None:
    """Take a snapshot of all disks of a VM at one moment, running or not.

    It leaves out memory, devices, UEFI variables and the TPM. Until it is deleted, the VM cannot be moved.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.disk_chain import check_snapshot_name
    from vgpuctl.usecases.disk.create_snapshot import create_snapshot
    from vgpuctl.usecases.found.find_vm import find_vm

    check_snapshot_name(snapshot)
    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        done = create_snapshot(opened, vm, snapshot, quiesce=quiesce)
    if as_json:
        _CHANGE.print(done)
    else:
        say(f"{done.vm}: snapshot {snapshot} " + (_TAKEN[done.is_frozen] if done.changed else "no change, it is there"))


def _state(one: "ListedSnapshot") -> str:
    return "whole" if one.is_whole else "cut short"


_LISTING: "Listing[ListedSnapshot, ListedSnapshot]" = Listing(
    columns=(
        Column("SNAPSHOT", lambda one: one.name),
        Column("DISKS", lambda one: ", ".join(one.disks), drops=1),
        Column("TAKEN (UTC)", lambda one: one.taken_at, unit=ColumnUnit.UTC, drops=2),
        Column("SIZE", lambda one: one.size_bytes and one.size_bytes // 2**20, unit=ColumnUnit.MIB, drops=3),
        Column("STATE", _state, colour=lambda one: colour_of_state(_state(one))),
    ),
    name=lambda one: one.name,
    in_order=True,
    json=lambda one: one,
    empty="the VM has no snapshot: take one with `vgpuctl create-snapshot`",
)


@StoredKind[Any]("snapshot", "list-snapshots").lists(_LISTING)
@click.argument("name")
@options.tenant
def list_snapshots(opened: "Services", name: str, tenant: str) -> "Sequence[ListedSnapshot]":
    """List the snapshots of a VM's disks, oldest first. The first disk is shown as `-`.

    SIZE is that of the disks as the guest sees them. No host is contacted.
    """
    from vgpuctl.usecases.disk.snapshots import list_snapshots
    from vgpuctl.usecases.found.find_vm import find_vm

    vm, _ = find_vm(opened, tenant, name)
    return list_snapshots(opened, vm)


@click.command("revert-snapshot")
@click.argument("name")
@click.argument("snapshot")
@options.tenant
@options.yes
@options.one_host
@options.as_json
def revert_snapshot(name: str, snapshot: str, tenant: str, yes: bool, as_json: bool, **where: Any) -> None:
    """Bring the disks of a stopped VM back to its newest snapshot. The snapshot ends with that.

    Everything that the guest wrote since is lost. Take the snapshot again to keep the state.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.disk.snapshots import find_newest, revert_snapshot
    from vgpuctl.usecases.found.find_vm import find_vm

    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        find_newest(opened, vm, snapshot, verb="revert")
        if not yes:
            confirm(f"Drop everything that VM {name} wrote since snapshot {snapshot}?")
        done = revert_snapshot(opened, vm, snapshot)
    if as_json:
        _CHANGE.print(done)
    else:
        say(f"{done.vm}: snapshot {snapshot} reverted")


@click.command("delete-snapshot")
@click.argument("name")
@click.argument("snapshot")
@options.tenant
@options.yes
@if_exists
@options.one_host
@options.as_json
def delete_snapshot(
    name: str, snapshot: str, tenant: str, yes: bool, if_exists: bool, as_json: bool, **where: Any
) -> None:
    """Delete the newest snapshot of a running VM; its disks keep what they hold.

    libvirt writes what changed since into the disks below, which takes a while and does not stop the guest.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.errors import NotFound
    from vgpuctl.usecases.disk.snapshots import delete_snapshot, find_newest
    from vgpuctl.usecases.found.find_vm import find_vm

    with services(**where) as opened:
        deleted = []
        try:
            vm, _ = find_vm(opened, tenant, name)
            find_newest(opened, vm, snapshot, verb="delete")
        except NotFound as error:
            if not if_exists:
                raise
            say(f"{error.message}, nothing to delete")
        else:
            if not yes:
                confirm(f"Delete snapshot {snapshot} of VM {name}?")
            delete_snapshot(opened, vm, snapshot)
            say(f"{vm.printed_name}: snapshot {snapshot} deleted")
            deleted.append(snapshot)
    if as_json:
        _DELETION.print(deletions_json(deleted, dry_run=False))
