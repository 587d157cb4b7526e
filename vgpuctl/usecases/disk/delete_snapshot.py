# SPDX-License-Identifier: Apache-2.0
"""delete-snapshot: write what the guest changed since a snapshot into the disks below, while it runs."""

from vgpuctl.errors import StateError
from vgpuctl.guests.live.disks import LiveDisks
from vgpuctl.model.disk_chain import DiskChain
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import VolumeState
from vgpuctl.usecases.disk.snapshots import SnapshotChange, named_chains, overlays_of, shown, values_of
from vgpuctl.usecases.domain.definition import define_again, refuse_fixed
from vgpuctl.usecases.image.disk_places import chains_of
from vgpuctl.usecases.image.volumes import recorded_volumes, remove_recorded
from vgpuctl.usecases.support.find_vm import find_vm
from vgpuctl.usecases.support.operations import operation
from vgpuctl.usecases.support.services import HostSession, Services


def delete_snapshot(services: Services, vm: Vm, name: str) -> SnapshotChange:
    """Delete the newest snapshot of a VM; its disks keep what they hold now.

    libvirt merges disks of running guests only. A run that was cut short is finished by the next one: the domain
    itself has no overlay on a disk that is merged. Raises NotFound, StateError for a VM that is off, DomainRejected.
    """
    refuse_fixed(vm, "delete a snapshot of")
    with operation(services, "delete-snapshot", vm):
        vm, _ = find_vm(services, vm.request.tenant, vm.request.name)
        host = services.host(vm.host)
        disks = named_chains(services, host, vm, name)
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
    live.merge(overlay.path or "", below)


def _refuse_in_use(services: Services, host: HostSession, vm: Vm, name: str) -> None:
    left = [one for one in chains_of(host, vm, recorded_volumes(services, vm)) if one.overlay_of(name) is not None]
    if left:
        raise StateError(
            f"{vm.printed_name}: snapshot {name} is still in use by {', '.join(str(one.disk) for one in left)}",
            hint="run the command again",
        )
