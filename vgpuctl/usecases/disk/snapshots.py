# SPDX-License-Identifier: Apache-2.0
"""The snapshots of a VM's disks: what there is, what they keep others from doing, and their end."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.errors import NotFound, StateError, VolumeRejected
from vgpuctl.guests.facts.storage_facts import VolumeFact
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.guests.live.disks import LiveDisks
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.model.disk_chain import DiskChain, chains, snapshot_of, snapshots_of
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume, VolumeKind, VolumeState
from vgpuctl.usecases.domain.definition import define_again, refuse_fixed
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.image.disk_places import chains_of
from vgpuctl.usecases.image.volumes import is_recorded, recorded_volumes, remove_recorded
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import HostSession, Services


@dataclass(frozen=True)
class SnapshotChange:
    """A change to one snapshot of a VM. disks: the disks that it is of; the first disk is `-`.

    is_frozen: of a snapshot of a running guest that was taken now, True if its agent froze its file systems meanwhile.
    """

    vm: str
    snapshot: str
    changed: bool
    disks: tuple[str, ...]
    is_frozen: bool | None = None


def named_chains(services: Services, host: HostSession, vm: Vm, name: str, *, verb: str) -> list[DiskChain]:
    """The disks that the newest snapshot is of. Raises what `find_newest` raises."""
    volumes = find_newest(services, vm, name, verb=verb)
    return [one for one in chains_of(host, vm, volumes) if one.overlay_of(name) is not None]


def find_newest(services: Services, vm: Vm, name: str, *, verb: str) -> list[Volume]:
    """The volumes of a VM whose newest snapshot has this name, by the store alone.

    Raises NotFound for an unknown one, StateError for one that is not the newest, and for a VM that is not to change.

    Only the newest can be deleted or reverted to: newer overlays hold only what differs from the disks below them, so
    a change there would spoil them. verb: `delete` or `revert`.
    """
    refuse_fixed(vm, "revert" if verb == "revert" else "delete a snapshot of")
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
            f"{vm.printed_name}: snapshot {name} has newer ones above it: {', '.join(names[names.index(name) + 1 :])}; "
            "they hold only what differs from its disks, and would be lost",
            hint=f"{verb} the newest first: `vgpuctl {verb}-snapshot {vm.printed_name} {names[-1]}`",
        )
    return volumes


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


@dataclass(frozen=True)
class ListedSnapshot:
    """One snapshot. disks: names of its disks, `-` for the first. is_whole: False when a run on it was cut short.

    taken_at: seconds since the epoch, UTC. size_bytes: of its disks as the guest sees them, the most that the guest
    can have written since; None where that is not known.
    """

    name: str
    disks: tuple[str, ...]
    is_whole: bool
    taken_at: float | None = None
    size_bytes: int | None = None


def list_snapshots(services: Services, vm: Vm) -> list[ListedSnapshot]:
    """The snapshots of a VM, oldest first."""
    volumes = recorded_volumes(services, vm)
    with services.store.reading() as session:
        times = session.volume_times(vm.uuid)
    found = []
    for name in snapshots_of(volumes):
        overlays = [one for one in volumes if one.kind is VolumeKind.OVERLAY and snapshot_of(one) == name]
        disks = tuple(sorted(one.label.partition("/")[2] or "-" for one in overlays))
        is_whole = all(one.state is VolumeState.MADE for one in overlays)
        taken_at = min((times[one.name] for one in overlays if one.name in times), default=None)
        sizes = [one.capacity_bytes for one in overlays if one.capacity_bytes is not None]
        size_bytes = sum(sizes) if len(sizes) == len(overlays) else None
        found.append(ListedSnapshot(name, disks, is_whole, taken_at, size_bytes))
    return found


def revert_snapshot(services: Services, vm: Vm, name: str) -> SnapshotChange:
    """Bring the disks of a VM back to its newest snapshot, which ends with that; take it again to keep the state.

    Disks that were attached since stay as they are. It is recorded before an overlay is deleted that it is not in use
    any more, so that a run which was cut short is finished by the next one. Raises NotFound, StateError for a VM that
    runs.
    """
    refuse_fixed(vm, "revert")
    with operation(services, "revert-snapshot", vm):
        vm, _ = find_vm(services, vm.request.tenant, vm.request.name)
        host = services.host(vm.host)
        disks = named_chains(services, host, vm, name, verb="revert")
        if LiveDisks(host.hypervisor, vm.domain_name, uuid=vm.uuid).xml() is not None:
            raise StateError(f"{vm.printed_name} runs, and its disks cannot be reverted", hint="stop the VM first")
        with services.store.transaction() as session:
            for overlay in (one.overlay_of(name) for one in disks):
                if overlay is not None:
                    session.begin_detach(overlay)
            session.add_vm_event(EventKind.DISKS_REVERTED, vm, f"snapshot {name}", before=values_of(name, disks))
        define_again(services, host, vm)
        host.before(f"delete the overlays of snapshot {name} of {vm.printed_name}")
        for overlay in overlays_of(services, vm, name):
            remove_recorded(services, host, overlay)
        return SnapshotChange(vm.printed_name, name, True, shown(disks))


def delete_snapshot(services: Services, vm: Vm, name: str) -> SnapshotChange:
    """Delete the newest snapshot of a VM; its disks keep what they hold now.

    libvirt merges disks of running guests only. A run that was cut short is finished by the next one: the domain
    itself has no overlay on a disk that is merged. Raises NotFound, StateError for a VM that is off, DomainRejected.
    """
    refuse_fixed(vm, "delete a snapshot of")
    with operation(services, "delete-snapshot", vm):
        vm, _ = find_vm(services, vm.request.tenant, vm.request.name)
        host = services.host(vm.host)
        disks = named_chains(services, host, vm, name, verb="delete")
        live = LiveDisks(host.hypervisor, vm.domain_name, uuid=vm.uuid)
        if disks and live.xml() is None:
            raise StateError(
                f"{vm.printed_name} is off, and libvirt merges the disks of running guests only",
                hint=f"start the VM first, or drop what it wrote: `vgpuctl revert-snapshot {vm.printed_name} {name}`",
            )
        for chain in disks:
            _merge(services, live, vm, chain, name)
        define_again(services, host, vm)
        host.before(f"delete the overlays of snapshot {name} of {vm.printed_name}")
        _refuse_in_use(services, host, vm, name)
        for overlay in overlays_of(services, vm, name):
            remove_recorded(services, host, overlay)
        with services.store.transaction() as session:
            session.add_vm_event(EventKind.DISKS_MERGED, vm, f"snapshot {name}", before=values_of(name, disks))
        return SnapshotChange(vm.printed_name, name, True, shown(disks))


def _merge(services: Services, live: LiveDisks, vm: Vm, chain: DiskChain, name: str) -> None:
    """Merge one disk. That is recorded before: from then on the domain itself says which file is in use."""
    overlay = chain.overlay_of(name)
    assert overlay is not None and overlay.path is not None
    below = chain.below(overlay).path
    assert below is not None
    if overlay.state is not VolumeState.MERGING:
        with services.store.transaction() as session:
            overlay = session.begin_merge(overlay)
            session.add_vm_event(EventKind.DISKS_MERGING, vm, f"snapshot {name}", before=values_of(name, [chain]))
    services.say(f"merging {chain.disk}")
    if live.merge(overlay.path or "", below) is LiveChange.NEXT_START and live.xml() is not None:
        raise StateError(
            f"the libvirt of {vm.host} merges no disks of a running guest; {vm.printed_name} keeps snapshot {name}",
            hint="a simulated host cannot; stop the VM, and drop what it wrote since: "
            f"`vgpuctl revert-snapshot {vm.printed_name} {name}`",
        )


def _refuse_in_use(services: Services, host: HostSession, vm: Vm, name: str) -> None:
    left = [one for one in chains_of(host, vm, recorded_volumes(services, vm)) if one.overlay_of(name) is not None]
    if left:
        raise StateError(
            f"{vm.printed_name}: snapshot {name} is still in use by {', '.join(str(one.disk) for one in left)}",
            hint="run the command again",
        )
