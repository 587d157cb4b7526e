# SPDX-License-Identifier: Apache-2.0
"""The volumes that vgpuctl made for a domain which the store has forgotten: they are the VM's own again.

Their names have the domain's UUID, which is random, and the domain or a disk of it uses them. All others stay foreign.
"""

from collections.abc import Mapping, Sequence

from vgpuctl.guests.facts.domain_facts import DomainFact
from vgpuctl.guests.facts.storage_facts import VolumeFact
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume, VolumeKind, VolumeState, read_volume_name


def own_volumes(hypervisor: Hypervisor, domain: DomainFact, vm: Vm, recorded: Sequence[Volume]) -> tuple[Volume, ...]:
    """The volumes of `vm`, whose domain vgpuctl made, with their snapshots. recorded: by the store, of any VM.

    A data disk outlives the VM, since nobody knows whether it was to. One with snapshots stays foreign, and so does one
    of whose name the tenant has another.
    """
    storage = Storage(hypervisor)
    there = [fact for pool in storage.pools() if pool.is_active for fact in storage.volumes(pool.name)]
    known = {(one.pool, one.name) for one in recorded if one.host == vm.host}
    mine = [one for one in there if one.name.startswith(vm.uuid) and (one.pool, one.name) not in known]
    by_path = {one.path: one for one in mine}
    labels = {one.label for one in recorded if (one.tenant, one.kind) == (vm.request.tenant, VolumeKind.DATA)}
    used = [one for one in mine if one.path in domain.disks or one.name in domain.disks]
    below = {one.backing_path for one in used}
    return tuple(
        volume for fact in used if fact.path not in below for volume in _with_those_below(vm, fact, by_path, labels)
    )


def _with_those_below(vm: Vm, fact: VolumeFact, by_path: Mapping[str, VolumeFact], labels: set[str]) -> list[Volume]:
    """A volume that the domain uses, and the ones that it is an overlay on. Empty where they are not the VM's own."""
    overlays: list[VolumeFact] = []
    while (below := by_path.get(fact.backing_path or "")) is not None and len(overlays) < len(by_path):
        overlays.append(fact)
        fact = below
    read = read_volume_name(fact.name, vm.uuid)
    if read is None:
        return []
    kind, label = read
    if kind is VolumeKind.DATA and (overlays or label in labels):
        return []
    stem = fact.name.removesuffix(".qcow2")
    if not all(one.name.startswith(f"{stem}.") and one.name.endswith(".qcow2") for one in overlays):
        return []
    snapshots = [one.name.removeprefix(f"{stem}.").removesuffix(".qcow2") for one in overlays]
    return [
        _volume(vm, fact, kind, label),
        *(
            _volume(vm, one, VolumeKind.OVERLAY, f"{name}/{label}")
            for one, name in zip(overlays, snapshots, strict=True)
        ),
    ]


def _volume(vm: Vm, fact: VolumeFact, kind: VolumeKind, label: str) -> Volume:
    return Volume(
        vm.uuid,
        vm.request.tenant,
        vm.request.name,
        vm.host,
        kind,
        fact.pool,
        fact.name,
        VolumeState.MADE,
        fact.capacity_bytes,
        fact.key,
        fact.path,
        fact.format,
        fact.backing_path,
        label,
        keep=True if kind is VolumeKind.DATA else None,
    )
