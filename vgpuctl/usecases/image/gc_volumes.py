# SPDX-License-Identifier: Apache-2.0
"""gc's part for volumes: those recorded for VMs that are gone, and those that only look as if vgpuctl made them."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from vgpuctl.guests.facts.domain_facts import DomainFact
from vgpuctl.guests.facts.storage_facts import VolumeFact
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.volume import Volume, VolumeKind, vm_uuid_of
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.garbage import Garbage, GarbageKind
from vgpuctl.usecases.image.volumes import is_recorded, users_of
from vgpuctl.usecases.running.operations import subjects_at_work
from vgpuctl.usecases.running.services import HostSession

OLD_ENDINGS = tuple(kind.ending() for kind in VolumeKind)
"""Of `TENANT.VM.qcow2` and `TENANT.VM-seed.iso`, the names that volumes had in older stores."""
_Volumes = Mapping[str, Sequence[VolumeFact]]


def read_volumes(host: HostSession) -> tuple[dict[str, list[VolumeFact]], frozenset[str]]:
    """Read every volume of the host's active pools, by pool, and name the pools that other hosts may have too."""
    storage = Storage(host.hypervisor)
    pools = [pool for pool in storage.pools() if pool.is_active]
    volumes = {pool.name: storage.volumes(pool.name) for pool in pools}
    return volumes, frozenset(pool.name for pool in pools if pool.is_remote)


def stray_volumes(
    session: Session,
    host: str,
    volumes: _Volumes,
    shared: Collection[str],
    staying: Sequence[DomainFact],
    moves: Collection[str] = (),
) -> Iterator[tuple[Volume | None, Garbage]]:
    """Yield the recorded volumes of VMs that are gone, then (None, …) for unrecorded ones with a name of ours.

    staying: domains that gc does not undefine. moves: UUIDs of VMs that are moved to or from this host.
    An unrecorded volume is never taken: nobody knows who made it.
    """
    known = {vm.uuid: vm.host for vm in session.vms()}
    recorded = session.volumes(host=host)
    spared = {*subjects_at_work(session), *moves} | {kept.uuid for kept in session.kept_vms(host=host)}
    gone = [one for one in recorded if known.get(one.vm_uuid) != host and one.vm_uuid not in spared and not one.is_kept]
    users = users_of(staying)
    names = {(volume.pool, volume.name) for volume in gone}
    bases = {
        one.backing_path: one.name for pool in volumes.values() for one in pool if (one.pool, one.name) not in names
    }
    for volume in gone:
        now = known.get(volume.vm_uuid)
        left_by = f"recorded for VM {volume.tenant}/{volume.vm_name}, which is"
        why = f"{left_by} gone" if now is None else f"{left_by} on {now}"
        left = _why_left(volume, volumes, shared, users, bases)
        yield volume, Garbage(GarbageKind.VOLUME, f"{volume.pool}/{volume.name}", host, why, left)
    owned = {(volume.pool, volume.name) for volume in recorded}
    for fact in _unrecorded(session, volumes, owned):
        user = users.get(fact.path) or users.get(fact.name)
        if vm_uuid_of(fact.name) is not None and user is not None:
            continue  # of another store's VM
        left = f"domain {user.name} uses it" if user else "the store has no record that vgpuctl made it"
        why = "named as vgpuctl names volumes, and no VM of the store has it"
        now = known.get(vm_uuid_of(fact.name) or "")
        if now is not None and now != host:
            why, left = f"named after a VM that is on {now}", f"it is the VM's own where {now} shares the pool"
        yield None, Garbage(GarbageKind.VOLUME, f"{fact.pool}/{fact.name}", host, why, left)


def _why_left(
    volume: Volume,
    volumes: _Volumes,
    shared: Collection[str],
    users: Mapping[str, DomainFact],
    bases: Mapping[str | None, str],
) -> str | None:
    if volume.pool not in volumes:
        return f"pool {volume.pool} is not there or not active"
    fact = next((one for one in volumes[volume.pool] if one.name == volume.name), None)
    if fact is None or not is_recorded(fact, volume):
        return None  # only the record goes
    if user := users.get(fact.path) or users.get(fact.name):
        return f"domain {user.name} uses it"
    if fact.path in bases:
        return f"volume {bases[fact.path]} is an overlay on it"
    return "other hosts may use it: its pool is reached over a network" if volume.pool in shared else None


def _unrecorded(session: Session, volumes: _Volumes, owned: Collection[tuple[str, str]]) -> Iterator[VolumeFact]:
    """Volumes with a UUID's name, or named after a VM of a tenant of the store that has no such VM."""
    domains = {vm.domain_name for vm in session.vms()}
    tenants = tuple(f"{tenant.name}." for tenant in session.tenants())
    for fact in (fact for pool in volumes.values() for fact in pool if (fact.pool, fact.name) not in owned):
        vm = next((fact.name.removesuffix(end) for end in OLD_ENDINGS if fact.name.endswith(end)), "")
        if vm_uuid_of(fact.name) is not None or (vm.startswith(tenants) and vm not in domains):
            yield fact
