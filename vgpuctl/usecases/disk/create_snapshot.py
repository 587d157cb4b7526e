# SPDX-License-Identifier: Apache-2.0
"""create-snapshot: from one moment on, the guest writes into overlays on its disks. Memory and devices are left out."""

from collections.abc import Sequence
from functools import partial

from vgpuctl.errors import StateError
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.guests.live.disks import LiveDisks
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.model.disk_chain import MOST_SNAPSHOTS, DiskChain, overlay_on, snapshots_of
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.image import BaseImage, ImageFormat
from vgpuctl.model.units import MIB
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume
from vgpuctl.usecases.disk.snapshots import SnapshotChange, delete_command, fact_of, overlays_of, shown, values_of
from vgpuctl.usecases.domain.definition import define_again, refuse_fixed
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.image.disk_places import chains_of
from vgpuctl.usecases.image.volumes import make_intended, recorded_volumes, remove_recorded
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.running.undo import Undo


def create_snapshot(services: Services, vm: Vm, name: str, *, quiesce: bool | None = None) -> SnapshotChange:
    """Take a snapshot of all disks of a VM at one moment. The same name again changes nothing.

    quiesce: let the guest's agent freeze its file systems meanwhile; None: if it answers and can. Raises StateError
    for a VM without disks and for one with too many snapshots, DomainRejected when libvirt or the guest refuses;
    nothing is left then.
    """
    refuse_fixed(vm, "take a snapshot of")
    with operation(services, "create-snapshot", vm):
        vm, _ = find_vm(services, vm.request.tenant, vm.request.name)
        host, volumes = services.host(vm.host), recorded_volumes(services, vm)
        disks = chains_of(host, vm, volumes)
        there = [one for one in disks if one.overlay_of(name) is not None]
        if there and _is_in_use(host, vm, there):
            return SnapshotChange(vm.printed_name, name, False, shown(there))
        _refuse_unfit(vm, disks, volumes, name)
        for left in overlays_of(services, vm, name):
            remove_recorded(services, host, left)  # of a run that was killed before the guest wrote into it
        disks = chains_of(host, vm, recorded_volumes(services, vm))
        is_frozen = _take(services, host, vm, disks, name, quiesce=quiesce)
        return SnapshotChange(vm.printed_name, name, True, shown(disks), is_frozen)


def _take(
    services: Services, host: HostSession, vm: Vm, disks: Sequence[DiskChain], name: str, *, quiesce: bool | None
) -> bool | None:
    with Undo(services.say, subject=vm.printed_name) as undoing:
        wanted = [(chain, overlay_on(chain, name, fact_of(host, chain.active).capacity_bytes)) for chain in disks]
        # All at once, so that a killed run leaves at least one that was not made, or all of them.
        with services.store.transaction() as session:
            for _, overlay in wanted:
                session.intend_volume(overlay)
        for _, overlay in wanted:
            undoing.push(str(overlay), partial(_remove, services, host, overlay))
        overlays = {chain.active.path or "": _make(services, host, chain, overlay) for chain, overlay in wanted}
        live = LiveDisks(host.hypervisor, vm.domain_name, uuid=vm.uuid)
        change, is_frozen = live.snapshot(overlays, quiesce=quiesce)
        if change is LiveChange.NEXT_START and live.xml() is not None:
            raise StateError(
                f"{vm.printed_name} runs, and libvirt on {vm.host} takes no snapshot of a running guest",
                hint="stop the VM first",
            )
        undoing.keep()
    define_again(services, host, vm)
    with services.store.transaction() as session:
        session.add_vm_event(EventKind.DISKS_SNAPSHOT, vm, f"snapshot {name}", after=values_of(name, disks))
    return is_frozen if change is LiveChange.DONE else None


def _make(services: Services, host: HostSession, chain: DiskChain, overlay: Volume) -> str:
    """Make the overlay of one disk, which is recorded. Returns its path."""
    storage, size = Storage(host.hypervisor), overlay.capacity_bytes or 0
    base = BaseImage(chain.active.path or "", ImageFormat.QCOW2, size)
    made = make_intended(
        services, overlay, lambda: storage.create_overlay(overlay.pool, overlay.name, size // MIB, base)
    )
    return made.path


def _remove(services: Services, host: HostSession, overlay: Volume) -> None:
    with services.store.reading() as session:
        recorded = [one for one in session.volumes(vm_uuid=overlay.vm_uuid) if one.name == overlay.name]
    for one in recorded:
        remove_recorded(services, host, one)


def _is_in_use(host: HostSession, vm: Vm, disks: Sequence[DiskChain]) -> bool:
    """True if the running guest writes into the overlays; of a VM that is off, the next start does."""
    live = LiveDisks(host.hypervisor, vm.domain_name, uuid=vm.uuid).xml()
    return live is None or all((one.active.path or "-") in live for one in disks)


def _refuse_unfit(vm: Vm, disks: Sequence[DiskChain], volumes: Sequence[Volume], name: str) -> None:
    if not disks:
        raise StateError(f"{vm.printed_name} has no disk to take a snapshot of")
    names = [one for one in snapshots_of(volumes) if one != name]
    if len(names) >= MOST_SNAPSHOTS:
        raise StateError(
            f"{vm.printed_name} has {len(names)} snapshots, and each makes its disks slower",
            hint=f"delete the newest first: `{delete_command(vm, names[-1])}`",
        )
    if any(one.active.path is None for one in disks):
        raise StateError(
            f"{vm.printed_name}: an older vgpuctl made its disk and recorded no path", hint="see docs/volumes.md"
        )
