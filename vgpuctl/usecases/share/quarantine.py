# SPDX-License-Identifier: Apache-2.0
"""VFs whose QEMU died at once or was killed get no new VM: they look healthy, and the next guest finds no GPU."""

from collections.abc import Sequence

from vgpuctl.errors import DomainRejected
from vgpuctl.model.health import HealthCode
from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import Vm
from vgpuctl.sharing.health import finding
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.usecases.observed.gpu_health import note_finding, policy_of
from vgpuctl.usecases.running.services import HostSession, Services

# QEMU's words when a device's own open fails (hw/vfio/container.c and hw/vfio/iommufd.c). Messages about
# memory that cannot be locked or a group that is not viable name the device too, but it is not at fault.
_NOT_OPENED = "error getting device from group", "error bind device"


def start_domain(services: Services, host: HostSession, vm: Vm, leases: Sequence[Lease]) -> None:
    """Start the VM's domain, whose guest checks its licence out. Raises DomainRejected.

    A VF that QEMU could not open goes into quarantine.
    """
    with services.store.reading() as session:
        has_seat = bool(session.licence_seats(vm_uuid=vm.uuid))
    if has_seat:
        with services.store.transaction() as session:
            session.note_licence_used(vm.uuid)
    try:
        host.hypervisor.start(vm.domain_name, uuid=vm.uuid)
    except DomainRejected as refused:
        said = refused.message
        broken = [
            one for one in leases if is_not_opened(said, one.share.function) or is_not_opened(said, one.share.mdev_uuid)
        ]
        if not quarantine(services, host, broken, f"QEMU of {vm.printed_name} could not open it: {said}"):
            raise
        again = "the VF is in quarantine now; run the command again to use another one"
        hint = f"{again}; {refused.hint}" if refused.hint else again
        raise DomainRejected(said, context=refused.context, hint=hint) from refused


def is_not_opened(said: str, device: str | None) -> bool:
    """True if QEMU says that it could not open this very device: a VF's address or an mdev's UUID."""
    return device is not None and any(f"vfio {device}: {words}" in said for words in _NOT_OPENED)


def quarantine(services: Services, host: HostSession, leases: Sequence[Lease], reason: str) -> bool:
    """Note in the store that the VFs of vGPUs may be wedged. Returns True if any is in quarantine for it."""
    policy = policy_of(services, host.name)
    found = [
        finding(HealthCode.VF_WEDGED, lease.share.function, " ".join(reason.split()))
        for lease in leases
        if (kind := kind_of(lease.share.sharing)).takes is Takes.VGPU and kind.is_on_vf
    ]
    if found:
        with services.store.transaction() as session:
            for one in found:
                note_finding(session, host.name, one, policy, uuid=None)
    return any(policy.forbids(one) for one in found)


def quarantine_killed(services: Services, host: HostSession, leases: Sequence[Lease]) -> None:
    """Put the VFs of VMs into quarantine whose QEMU this run had to kill."""
    killed = [lease for lease in leases if lease.vm_uuid in host.killed]
    for name in dict.fromkeys(f"{lease.tenant}/{lease.vm_name}" for lease in killed):
        own = [lease for lease in killed if f"{lease.tenant}/{lease.vm_name}" == name]
        quarantine(services, host, own, f"QEMU of {name} was killed: it did not end by SIGTERM")
