# SPDX-License-Identifier: Apache-2.0
"""The snapshots of a VM's disks as the store and its host have them, and what they keep others from doing."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.errors import NotFound, StateError, VolumeRejected
from vgpuctl.guests.facts.storage_facts import VolumeFact
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.disk_chain import DiskChain, chains, snapshot_of, snapshots_of
from vgpuctl.model.event import Values
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume, VolumeKind
from vgpuctl.usecases.image.disk_places import chains_of
from vgpuctl.usecases.image.volumes import is_recorded, recorded_volumes
from vgpuctl.usecases.support.services import HostSession, Services


@dataclass(frozen=True)
class SnapshotChange:
    """A change to one snapshot of a VM. disks: the disks that it is of; the first disk is `-`."""

    vm: str
    snapshot: str
    changed: bool
    disks: tuple[str, ...]


def named_chains(services: Services, host: HostSession, vm: Vm, name: str) -> list[DiskChain]:
    """The disks that a snapshot is of. Raises NotFound for an unknown one, StateError for one that is not the newest.

    Only the newest can be deleted or reverted to: older ones are below it.
    """
    volumes = recorded_volumes(services, vm)
    names = snapshots_of(volumes)
    if name not in names:
        make = f"`vgpuctl create-snapshot {vm.request.name} {name} --tenant {vm.request.tenant}`"
        known = (
            f"its snapshots: {', '.join(names)}" if names else f"it has no snapshots; {make} makes one of its state now"
        )
        raise NotFound(f"{vm.printed_name} has no snapshot {name!r}", hint=known)
    if names[-1] != name:
        raise StateError(
            f"{vm.printed_name}: snapshot {name} has newer ones above it: {', '.join(names[names.index(name) + 1 :])}",
            hint=f"delete the newest first: `{delete_command(vm, names[-1])}`",
        )
    return [one for one in chains_of(host, vm, volumes) if one.overlay_of(name) is not None]


def overlays_of(services: Services, vm: Vm, name: str) -> list[Volume]:
    """All volumes that are recorded for a snapshot, also those that are not in use."""
    return [
        one for one in recorded_volumes(services, vm) if one.kind is VolumeKind.OVERLAY and snapshot_of(one) == name
    ]


def fact_of(host: HostSession, volume: Volume) -> VolumeFact:
    """The volume as its host has it. Raises VolumeRejected when it is not there as it was made."""
    fact = Storage(host.hypervisor).find_volume(volume.pool, volume.name)
    if fact is None or not is_recorded(fact, volume):
        raise VolumeRejected(f"{volume} is not there as it was made", hint="see docs/volumes.md")
    return fact


def refuse_snapshots(services: Services, vm: Vm, what: str, *, disk: str | None = None) -> None:
    """Raise StateError where snapshots keep a change from a VM. what: `move`. disk: label of the only disk it is about.

    An overlay is of use only with all that is below it, on the same host and as large as it is now.
    """
    names = [
        snapshot_of(one.overlays[-1])
        for one in chains(recorded_volumes(services, vm))
        if one.overlays and (disk is None or one.disk.label == disk)
    ]
    if names:
        raise StateError(
            f"cannot {what} {vm.printed_name}: its disks have snapshots, the newest is {names[0]}",
            hint=f"delete them first: `{delete_command(vm, names[0])}`",
        )


def delete_command(vm: Vm, snapshot: str) -> str:
    """The command that deletes a snapshot, for hints."""
    return f"vgpuctl delete-snapshot {vm.printed_name} {snapshot}"


def shown(disks: Sequence[DiskChain]) -> tuple[str, ...]:
    """The names of disks, `-` for the first one."""
    return tuple(one.disk.label or "-" for one in disks)


def values_of(name: str, disks: Sequence[DiskChain]) -> Values:
    """The values of a snapshot for its events."""
    return {"snapshot": name, "disks": list(shown(disks))}
