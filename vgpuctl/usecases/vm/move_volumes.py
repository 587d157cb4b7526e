# SPDX-License-Identifier: Apache-2.0
"""The volumes of a VM that moves: shared ones are there already, others are copied.

Those of a VM that is off are copied through this machine. Of one that runs, its disks are made empty on the new host
and filled by QEMU while it moves; what nobody writes, such as its seed, is copied before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vgpuctl.errors import StateError, VgpuctlError, VolumeRejected
from vgpuctl.guests.facts.storage_facts import VolumeFact
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.image import BaseImage
from vgpuctl.model.units import MIB, format_mib
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume, VolumeKind, VolumeState
from vgpuctl.store.store import Session
from vgpuctl.usecases.disk.tenant_disks import detach_command
from vgpuctl.usecases.domain.guest import check_networks
from vgpuctl.usecases.domain.guest_state import drop_left_state
from vgpuctl.usecases.image.image_gate import images_on, naming_ejection
from vgpuctl.usecases.image.volumes import is_recorded, make_volume, remove_volumes
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.running.services import HostSession, Services


class VolumeWay(StrEnum):
    """How a volume gets to the new host. made again: the seed of a VM whose old host is dead."""

    SHARED = "shared"
    COPIED = "copied"
    MADE_AGAIN = "made again"


@dataclass(frozen=True)
class VolumeMove:
    """One recorded volume and its way to another host."""

    volume: Volume
    host: str
    way: VolumeWay

    def settle(self, session: Session) -> None:
        """Record a shared volume for the new host; any other is recorded there since it was made."""
        if self.way is VolumeWay.SHARED:
            session.hand_over_volume(self.volume, self.host)


def recorded_volumes(services: Services, source: HostSession, vm: Vm) -> list[tuple[Volume, VolumeFact]]:
    """The volumes of a VM, as they are on its host. Raises StateError for one that is not there as it was made."""
    with services.store.reading() as session:
        volumes = session.volumes(vm_uuid=vm.uuid, host=source.name)
    # The answers of an installation go nowhere: its first run ends before a move.
    volumes = [one for one in volumes if one.kind is not VolumeKind.ANSWERS]
    here = Storage(source.hypervisor)
    found = []
    for volume in volumes:
        _refuse_bound(vm, volume)
        fact = here.find_volume(volume.pool, volume.name)
        if fact is None or not is_recorded(fact, volume):
            raise StateError(
                f"{vm.printed_name}: cannot move: {volume} is not there as it was made", hint="see docs/volumes.md"
            )
        found.append((volume, fact))
    return found


def _refuse_bound(vm: Vm, volume: Volume) -> None:
    """Raise StateError for a volume that stays where it is: an overlay, and a disk that the guest still lets go of."""
    if volume.kind is VolumeKind.OVERLAY:
        raise StateError(
            f"{vm.printed_name}: cannot move: its disks have snapshots",
            hint=f"delete them first: `vgpuctl list-snapshots {vm.printed_name}` shows them",
        )
    if volume.state is VolumeState.DETACHING:
        raise StateError(
            f"{vm.printed_name}: cannot move: disk {volume.label} is still being detached",
            hint=f"run `{detach_command(vm, volume.label)}` again",
        )


def plan_volumes(
    services: Services, target: HostSession, moved: Vm, volumes: Sequence[tuple[Volume, VolumeFact]]
) -> tuple[VolumeMove, ...]:
    """Find out how the volumes of a VM get to the new host, and that it has the images and networks that it needs.

    moved: the VM as it would be there. volumes: its own, as they are on its old host. Writes nothing. Raises StateError
    for a volume that cannot follow, and what a new VM there would be refused for. The copy of a killed
    move is recorded for that host, and is replaced.
    """
    with naming_ejection(moved):
        images = images_on(services, target, moved, remember=False)
    with services.store.reading() as session:
        attached = [port.position for port in session.ports(vm_uuid=moved.uuid)]
    check_networks(target, moved, attached)
    there = Storage(target.hypervisor)
    left = {(one.pool, one.name) for one in _left_on(services, target, moved.uuid)}
    found = []
    for volume, fact in volumes:
        is_looked_for = there.has_pool(volume.pool) and (volume.pool, volume.name) not in left
        copy = there.find_volume(volume.pool, volume.name) if is_looked_for else None
        if copy is None and volume.kind is VolumeKind.DISK and fact.backing_path is not None:
            base = images.base
            if base is None or base.path != fact.backing_path:
                raise StateError(
                    f"{moved.printed_name}: cannot move: its disk is an overlay on {fact.backing_path}, "
                    f"and {target.name} has"
                    f" the image at {base.path if base is not None else 'no known path'}",
                    hint="put the image at the same path on both hosts, or flatten the disk with `virsh blockpull`",
                )
        if copy is None and not there.has_pool(volume.pool):
            there.check_disk(volume.pool, fact.capacity_bytes // MIB, None)
        found.append(VolumeMove(volume, target.name, VolumeWay.COPIED if copy is None else VolumeWay.SHARED))
    return tuple(found)


def carry_volumes(services: Services, source: HostSession, target: HostSession, moves: Sequence[VolumeMove]) -> None:
    """Prove that shared volumes are shared, and copy the others. When one copy fails, those made before are deleted.

    The VM is stopped and undefined. Raises StateError, VolumeExists and VolumeRejected.
    """
    here, there = Storage(source.hypervisor), Storage(target.hypervisor)
    for pool in sorted({one.volume.pool for one in moves if one.way is VolumeWay.SHARED}):
        prove_shared(here, there, pool)
    for vm_uuid in {one.volume.vm_uuid for one in moves}:
        remove_volumes(services, target, _left_on(services, target, vm_uuid))
    copied: list[Volume] = []
    try:
        for one in moves:
            if one.way is VolumeWay.COPIED:
                copied.append(_copy(services, here, there, one))
    except BaseException:
        remove_volumes(services, target, copied)
        raise


def make_volumes_there(
    services: Services, source: HostSession, target: HostSession, moves: Sequence[VolumeMove], base: BaseImage | None
) -> tuple[list[Volume], frozenset[str]]:
    """Give the new host the volumes of a VM that runs: shared ones are proven, disks made empty, the rest is copied.

    base: its base image there. Returns the volumes as the new host has them, and the paths on the old one of those that
    are still to be filled. Raises StateError, VolumeExists and VolumeRejected; what was made is for the caller to
    remove: it is recorded for the new host.
    """
    here, there = Storage(source.hypervisor), Storage(target.hypervisor)
    for pool in sorted({one.volume.pool for one in moves if one.way is VolumeWay.SHARED}):
        prove_shared(here, there, pool)
    for vm_uuid in {one.volume.vm_uuid for one in moves}:
        remove_volumes(services, target, _left_on(services, target, vm_uuid))
    made, paths = [], set()
    for one in moves:
        if one.way is VolumeWay.SHARED:
            made.append(replace(one.volume, host=one.host))
        elif one.volume.kind.is_written():
            made.append(_copy(services, here, there, one))
        else:
            fact = _as_made(here, one.volume)
            paths.add(fact.path)
            made.append(_make_empty(services, there, one, fact, base))
    return made, frozenset(paths)


def _make_empty(
    services: Services, there: Storage, move: VolumeMove, fact: VolumeFact, base: BaseImage | None
) -> Volume:
    """Make a disk of the same size on the new host, on the same base image where the old one is."""
    there.ensure_pool(fact.pool)
    size_mib = fact.capacity_bytes // MIB
    new = _unmade(move, fact)
    if fact.backing_path is None or base is None:
        made = make_volume(services, new, lambda: there.create_disk(fact.pool, fact.name, size_mib))
    else:
        made = make_volume(services, new, lambda: there.create_overlay(fact.pool, fact.name, size_mib, base))
    return _recorded_as(new, made)


def drop_left_volumes(services: Services, source: HostSession, vm: Vm) -> None:
    """Delete the volumes that a moved VM left on its old host; what cannot be deleted now stays recorded, for `gc`."""
    remove_volumes(services, source, _left_on(services, source, vm.uuid))


def _left_on(services: Services, host: HostSession, vm_uuid: str) -> list[Volume]:
    """The volumes that are recorded for a VM on a host where it is not: copies of a move, before or after it."""
    with services.store.reading() as session:
        return list(session.volumes(vm_uuid=vm_uuid, host=host.name))


def prove_shared(here: Storage, there: Storage, pool: str) -> None:
    """Raise StateError where pools of one name are not one pool."""
    if not there.shares_pool(here, pool):
        raise StateError(
            f"pool {pool} of {there.host_name} has volumes named as those of {here.host_name}, but is another pool",
            hint=f"find out which of them is the VM's own, and delete the other on {there.host_name}",
        )


def _copy(services: Services, here: Storage, there: Storage, move: VolumeMove) -> Volume:
    fact = _as_made(here, move.volume)
    services.say(f"{move.volume.vm_name}: copying {move.volume.kind}, {format_mib(fact.capacity_bytes // MIB)}")
    new = _unmade(move, fact)
    return _recorded_as(new, make_volume(services, new, lambda: there.copy_volume(here, fact)))


def _as_made(here: Storage, volume: Volume) -> VolumeFact:
    fact = here.find_volume(volume.pool, volume.name)
    if fact is None or not is_recorded(fact, volume):
        raise VolumeRejected(f"{volume} is not there as it was made")
    return fact


def _unmade(move: VolumeMove, fact: VolumeFact) -> Volume:
    """The record of a volume on the new host before it is made."""
    return replace(
        move.volume, host=move.host, state=VolumeState.INTENDED, capacity_bytes=fact.capacity_bytes, key=None,
        path=None, format=None, backing_path=None,
    )  # fmt: skip


def _recorded_as(new: Volume, made: VolumeFact) -> Volume:
    """The record after make_volume."""
    return replace(
        new, state=VolumeState.MADE, key=made.key, path=made.path, format=made.format, backing_path=made.backing_path
    )


def drop_copies(services: Services, vm: Vm, hosts: Sequence[str]) -> bool:
    """Remove the volumes, variables and TPM of a VM from hosts where it is not, as a move leaves them.

    A host on which its domain is still defined, one that is fenced, and one that does not answer are left to `gc`.
    Returns False when it left one that did not answer. A dry run that goes on leaves them where they are.
    """
    is_done = True
    for name in hosts if not services.goes_on else ():
        with services.store.reading() as session:
            now = session.vm(vm.request.tenant, vm.request.name)
        if now is None or (now.uuid, now.host == name) != (vm.uuid, False) or is_host_fenced(services, name):
            continue
        try:
            host = services.host(name)
            if host.hypervisor.domain(vm.uuid) is not None:
                continue
            drop_left_volumes(services, host, now)
        except VgpuctlError as error:
            services.forget_host(name)
            services.say(f"{vm.printed_name}: its copies on {name} are left for `gc`: {error.message}")
            is_done = False
        else:
            drop_left_state(services, host, now)
    return is_done
