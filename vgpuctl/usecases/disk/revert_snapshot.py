# SPDX-License-Identifier: Apache-2.0
"""revert-snapshot: drop what a VM wrote to its disks since a snapshot, while it is off."""

from vgpuctl.errors import StateError
from vgpuctl.guests.live.disks import LiveDisks
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.disk.snapshots import SnapshotChange, named_chains, overlays_of, shown, values_of
from vgpuctl.usecases.domain.definition import define_again, refuse_fixed
from vgpuctl.usecases.image.volumes import remove_recorded
from vgpuctl.usecases.support.find_vm import find_vm
from vgpuctl.usecases.support.operations import operation
from vgpuctl.usecases.support.services import Services


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
        disks = named_chains(services, host, vm, name)
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
