# SPDX-License-Identifier: Apache-2.0
"""list-disks, delete-disk: data disks that tenants keep."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.state_colours import colour_of_state

if TYPE_CHECKING:
    from vgpuctl.model.kept_vm import KeptVm
    from vgpuctl.usecases.disk.tenant_disks import ListedDisk, TenantDisk
    from vgpuctl.usecases.found.deletion import Deletion
    from vgpuctl.usecases.running.services import Services

_DISKS: "StoredKind[TenantDisk]" = StoredKind("disk", "list-disks", tenant=options.tenant)
_LISTING: "Listing[ListedDisk, ListedDisk]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.tenant),
        Column("DISK", lambda one: one.name),
        Column(
            "SIZE",
            lambda one: None if one.size_bytes is None else one.size_bytes // 2**20,
            unit=ColumnUnit.MIB,
        ),
        Column("STATE", lambda one: one.state, colour=lambda one: colour_of_state(one.state)),
        Column("VM", lambda one: one.vm),
        Column("HOST", lambda one: one.host, drops=2),
        Column("POOL", lambda one: one.pool, drops=3),
        Column("KEPT", lambda one: "yes" if one.keep else "no", drops=1),
        Column(
            "UNTIL",
            lambda one: one.until,
            unit=ColumnUnit.UTC,
            is_rare=True,
        ),
        Column("VOLUME", lambda one: one.volume, is_wide=True),
    ),
    name=lambda one: f"{one.tenant}/{one.name}",
    json=lambda one: one,
    empty="no data disk yet: attach one with `vgpuctl attach-disk`, or create a VM with --data-disk",
)


@_DISKS.lists(_LISTING)
def list_disks(opened: "Services", tenant: str | None) -> "Sequence[ListedDisk]":
    """List the data disks of tenants and the VMs that have them. A disk is attached, detaching, free for a VM on its
    host, or kept of a deleted VM.
    """
    from vgpuctl.usecases.disk.tenant_disks import list_disks

    return list_disks(opened, tenant)


@_DISKS.deletes(whose=" of tenant {tenant} with all data", where=options.one_host)
def delete_disk() -> "Deletion[TenantDisk | KeptVm]":
    """Delete data disks that no VM has, with their content. The name of a deleted VM stands for its kept disks.

    Refused for a disk that a VM has, which is named.
    """
    from vgpuctl.usecases.disk.disks import DELETION

    return DELETION
