# SPDX-License-Identifier: Apache-2.0
"""VFs whose QEMU died at once or was killed get no new VM: they look healthy, and the next guest finds no GPU."""

from collections.abc import Sequence

from vgpuctl.agent.wire.steps import QuarantineFunction
from vgpuctl.errors import DomainRejected
from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.services import HostSession


def start_domain(host: HostSession, vm: Vm, leases: Sequence[Lease]) -> None:
    """Start the VM's domain. A VF that QEMU could not open goes into quarantine. Raises DomainRejected."""
    try:
        host.hypervisor.start(vm.domain_name, uuid=vm.uuid)
    except DomainRejected as refused:
        said = refused.message
        # QEMU names the device that VFIO refused: `vfio 0000:41:00.4: error getting device from group 24`.
        named = [
            one for one in leases if f"vfio {one.slice.function}:" in said or f"vfio {one.slice.mdev_uuid}:" in said
        ]
        quarantine(host, named, f"QEMU of {vm.domain_name} could not open it: {said}")
        raise


def quarantine(host: HostSession, leases: Sequence[Lease], reason: str) -> None:
    """Put the VFs of vGPUs into quarantine. Raises HostError."""
    steps = [
        QuarantineFunction(lease.slice.function, reason)
        for lease in leases
        if lease.slice.sharing.is_vgpu() and lease.slice.sharing.needs_virtual_functions()
    ]
    if steps:
        host.agent.apply(steps)


def quarantine_killed(host: HostSession, leases: Sequence[Lease]) -> None:
    """Put the VFs of VMs into quarantine whose QEMU this run had to kill. Raises HostError."""
    killed = [lease for lease in leases if lease.vm_uuid in host.killed]
    for name in dict.fromkeys(f"{lease.tenant}.{lease.vm_name}" for lease in killed):
        own = [lease for lease in killed if f"{lease.tenant}.{lease.vm_name}" == name]
        quarantine(host, own, f"QEMU of {name} was killed: it did not end by SIGTERM")
