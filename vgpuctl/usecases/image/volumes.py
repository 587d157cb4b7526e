# SPDX-License-Identifier: Apache-2.0
"""The gate to volumes: only what the store records for a VM, and what libvirt shows to be that, is ever deleted.

A volume is recorded before libvirt creates it, and libvirt creates it only when there is none of its name. So a
killed run leaves a record, and a volume without one is somebody else's.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vgpuctl.errors import VolumeExists, VolumeRejected
from vgpuctl.guests.facts.domain_facts import DomainFact
from vgpuctl.guests.facts.storage_facts import VolumeFact
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.guests.seed.image import answers_image, seed_image
from vgpuctl.model.image import BaseImage, HostImages
from vgpuctl.model.network import Attachment
from vgpuctl.model.units import MIB
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume, VolumeKind, wanted_volumes
from vgpuctl.usecases.image.licence_token import with_licence_token
from vgpuctl.usecases.image.node_join import join_of
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.running.undo import Undo


def refuse_taken_volumes(host: HostSession, vm: Vm) -> None:
    """Raise VolumeExists before anything is made when the host has a volume of a name that this VM would get."""
    storage = Storage(host.hypervisor)
    for volume in wanted_volumes(vm):
        if not storage.has_pool(volume.pool):
            continue
        found = storage.find_volume(volume.pool, volume.name)
        if found is not None:
            raise VolumeExists(
                f"pool {volume.pool} on {host.name} has a volume {volume.name} that vgpuctl did not make: {found.path}",
                hint="it stays as it is; run the command again",
            )


def make_volumes(
    services: Services, host: HostSession, vm: Vm, attachments: Sequence[Attachment], images: HostImages, undoing: Undo
) -> None:
    """Create the VM's disks and the media that vgpuctl writes. `undoing` deletes what this run made, nothing else.

    Raises VolumeExists when a volume of the name is there, VolumeRejected for any other refusal.
    """
    storage = Storage(host.hypervisor)
    for volume in wanted_volumes(vm):
        undoing.push(str(volume.kind), partial(_undo, services, host, volume))
        if volume.kind.is_written():
            if volume.kind is VolumeKind.SEED:
                data = seed_image(vm.request.cloud_init, vm, attachments, join_of(services, vm))
            else:
                data = answers_image(vm.request.cloud_init, vm, attachments)
            _make_seed(services, storage, volume, data)
        else:
            make_volume(services, volume, _disk_maker(storage, volume, images.base))


@contextlib.contextmanager
def seed_made_again(services: Services, host: HostSession, vm: Vm, attachments: Sequence[Attachment]) -> Iterator[None]:
    """Make the seed of a VM on another host than it is on, from what the store keeps; deleted when the block fails.

    The remains of a killed run are deleted first. Raises StateError for a seed with secret documents.
    """
    vm = with_licence_token(services, vm)
    # The name is in every seed; a seed whose only content was a token of a pool that is gone has nothing else.
    cloud_init = replace(vm.request.cloud_init, hostname=vm.request.cloud_init.hostname or vm.request.name)
    vm = replace(vm, host=host.name, request=replace(vm.request, cloud_init=cloud_init))
    (seed,) = (one for one in wanted_volumes(vm) if one.kind is VolumeKind.SEED)
    with services.store.reading() as session:
        left = [one for one in session.volumes(vm_uuid=vm.uuid, host=host.name) if one.kind is VolumeKind.SEED]
    remove_volumes(services, host, left)
    data = seed_image(vm.request.cloud_init, vm, attachments, join_of(services, vm))
    try:
        _make_seed(services, Storage(host.hypervisor), seed, data)
        yield
    except BaseException:
        _undo(services, host, seed)
        raise


def recorded_volumes(services: Services, vm: Vm) -> list[Volume]:
    """Read the volumes that the store records for a VM on its host."""
    with services.store.reading() as session:
        return session.volumes(vm_uuid=vm.uuid, host=vm.host)


def has_volumes(services: Services, host: HostSession, vm: Vm) -> bool:
    """True if a host has all recorded volumes of a VM as they were made."""
    storage = Storage(host.hypervisor)
    found = [
        (storage.find_volume(one.pool, one.name) if storage.has_pool(one.pool) else None, one)
        for one in recorded_volumes(services, vm)
        if one.kind is not VolumeKind.ANSWERS
    ]
    return all(fact is not None and is_recorded(fact, volume) for fact, volume in found)


@dataclass(frozen=True)
class Place:
    """The path of a VM's volume on its host, and of the base image under it."""

    path: str
    backing_path: str | None = None


def find_own(storage: Storage, vm: Vm, volumes: Sequence[Volume], kind: VolumeKind, label: str = "") -> Place:
    """Find a VM's recorded volume, also before it is made.

    Raises VolumeRejected when none is recorded, or when libvirt has another volume in its place: a VM never boots
    from a disk that is not known to be its own.
    """
    volume = next((one for one in volumes if (one.kind, one.label) == (kind, label)), None)
    if volume is None:
        raise VolumeRejected(
            f"the store records no {kind} {label or 'volume'} for {vm.printed_name} on {vm.host}",
            hint="another VM has the volume of its name; see docs/volumes.md",
        )
    found = storage.find_volume(volume.pool, volume.name) if storage.has_pool(volume.pool) else None
    if found is None:
        return Place(volume.path or storage.volume_path(volume.pool, volume.name))
    if (difference := _difference(found, volume)) is not None:
        raise VolumeRejected(
            f"{volume} is not the volume that was made for {vm.printed_name}: {difference}",
            hint=f"look at it with `virsh vol-dumpxml {volume.name} --pool {volume.pool}` on {volume.host}",
        )
    return Place(found.path, found.backing_path)


def paths_of(storage: Storage, volumes: Sequence[Volume]) -> set[str]:
    """Give the paths of recorded volumes, as recorded and as libvirt has them now."""
    now = {storage.find_volume_path(volume.pool, volume.name) for volume in volumes}
    return {path for path in now | {volume.path for volume in volumes} if path is not None}


def remove_volumes(services: Services, host: HostSession, volumes: Sequence[Volume]) -> list[str]:
    """Delete recorded volumes and their records; repeatable. Returns a line for each that is still there.

    Their records stay then, and `gc` deletes them when it can. A volume that is not the recorded one is left alone
    for good. Raises VolumeRejected when libvirt refuses to delete one. A dry run that goes on ends the records
    alone.
    """
    storage, left = Storage(host.hypervisor), []
    users = users_of(_users_left(services, host))
    for volume in volumes:
        why = _remove(services, storage, volume, users)
        if why is not None:
            left.append(f"{volume} is left: {why}")
            services.say(f"{volume} is left: {why}; `vgpuctl gc` deletes it when that has changed")
    return left


def _users_left(services: Services, host: HostSession) -> list[DomainFact]:
    """The domains of a host; in a dry run that goes on without those of VMs that it has left out."""
    domains = host.hypervisor.domains()
    if not services.goes_on:
        return domains
    with services.store.reading() as session:
        there = {vm.uuid for vm in session.vms()}
    return [one for one in domains if one.metadata is None or one.uuid in there]


def remove_recorded(services: Services, host: HostSession, volume: Volume) -> None:
    """Delete one volume with its record. Raises VolumeRejected when it is still there."""
    left = remove_volumes(services, host, [volume])
    if left:
        raise VolumeRejected(left[0])


def users_of(domains: Sequence[DomainFact]) -> dict[str, DomainFact]:
    """Map each path, device and volume name that a domain has as a disk to that domain."""
    return {disk: domain for domain in domains for disk in domain.disks}


def is_recorded(found: VolumeFact, volume: Volume) -> bool:
    """Return True if libvirt's volume is the one that the store records.

    A made volume has the recorded key, format and backing file; a disk may have grown, and may have been flattened.
    One that was only intended has the size and format that were asked for: no volume of its name was there when the
    record was written.
    """
    return _difference(found, volume) is None


def _difference(found: VolumeFact, volume: Volume) -> str | None:
    """Say in which point libvirt's volume is not the recorded one; None when it is."""
    is_made, is_disk = volume.is_made, not volume.kind.is_written()
    size, asked = found.capacity_bytes, volume.capacity_bytes
    wanted = volume.format or ("qcow2" if not is_made else found.format)
    if volume.key not in (None, found.key):
        return f"libvirt's key is {found.key}, not {volume.key}"
    if asked is not None and size != asked and not (is_disk and is_made and size > asked):
        return f"it has {size} bytes, not {asked}"
    if is_disk and found.format != wanted:  # libvirt makes a seed `raw`, and calls it `iso` after the next look
        return f"its format is {found.format}, not {wanted}"
    if volume.format is not None and found.backing_path not in (None, volume.backing_path):
        return f"its backing file is {found.backing_path}, not {volume.backing_path or 'none'}"
    return None


def _disk_maker(storage: Storage, volume: Volume, base: BaseImage | None) -> Callable[[], VolumeFact]:
    """Data disks are empty, the first disk is an overlay on the VM's base image, where it has one."""
    size_mib = (volume.capacity_bytes or 0) // MIB
    if base is None or volume.kind is VolumeKind.DATA:
        return lambda: storage.create_disk(volume.pool, volume.name, size_mib)
    return lambda: storage.create_overlay(volume.pool, volume.name, size_mib, base)


def _make_seed(services: Services, storage: Storage, volume: Volume, data: bytes) -> None:
    sized = Volume(**{**vars(volume), "capacity_bytes": len(data)})
    make_volume(services, sized, lambda: storage.create_image(volume.pool, volume.name, data))


def make_volume(services: Services, volume: Volume, create: Callable[[], VolumeFact]) -> VolumeFact:
    """Record a volume, have it created, and record what was made. Raises VolumeExists, with the record forgotten."""
    with services.store.transaction() as session:
        session.intend_volume(volume)
    return make_intended(services, volume, create)


def make_intended(services: Services, volume: Volume, create: Callable[[], VolumeFact]) -> VolumeFact:
    """Have a volume created that is recorded, and record what was made. Raises VolumeExists, as make_volume does."""
    try:
        made = create()
    except VolumeExists:
        with services.store.transaction() as session:
            session.forget_volume(volume)
        raise
    with services.store.transaction() as session:
        session.set_volume_made(
            volume, key=made.key, path=made.path, format_name=made.format, backing_path=made.backing_path
        )
    return made


def _undo(services: Services, host: HostSession, volume: Volume) -> None:
    with services.store.reading() as session:
        recorded = [one for one in session.volumes(vm_uuid=volume.vm_uuid, host=host.name) if one.name == volume.name]
    for one in recorded:
        remove_recorded(services, host, one)


def _is_as_made(storage: Storage, volume: Volume) -> bool:
    """Return False if a volume holds data that shows that somebody else put it there.

    A disk of a guest holds anything; one whose creation was cut short is empty. A seed names its VM's UUID.
    """
    if volume.kind is VolumeKind.SEED and volume.is_made and volume.format is None:
        return True  # an older vgpuctl made it, and may have named its VM in another way
    if not volume.kind.is_written():
        return volume.is_made or storage.is_unused_disk(volume.pool, volume.name)
    size = volume.capacity_bytes or 0
    return storage.has_text_or_nothing(volume.pool, volume.name, volume.vm_uuid, size)


def _remove(services: Services, storage: Storage, volume: Volume, users: Mapping[str, DomainFact]) -> str | None:
    """Delete one volume and its record. Returns why it is still there, None when it is gone or not ours."""
    try:
        found = storage.find_volume(volume.pool, volume.name)
    except VolumeRejected as error:
        return error.message
    if found is not None and is_recorded(found, volume) and _is_as_made(storage, volume):
        user = users.get(found.path) or users.get(found.name)
        if user is not None:
            return f"domain {user.name} uses it"
        if not services.goes_on:
            storage.delete_volume(volume.pool, volume.name)
    elif found is not None:
        why = _difference(found, volume) or "it holds other data"
        owner = f"{volume.tenant}/{volume.vm_name}"
        services.say(f"{volume} is left alone: it is not the volume that was made for {owner}: {why}")
    with services.store.transaction() as session:
        session.forget_volume(volume)
    return None
