# SPDX-License-Identifier: Apache-2.0
"""GPUs of a running VM that come or go later: a lease `reserved` is attached at the next start.

A lease `releasing` is of a GPU that the guest still has; its problem says what is waited for. The share is released
when the guest has let go of it, or when the VM has stopped, and never before.
"""

from collections.abc import Sequence

from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.errors import AgentProblem
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.guests.live.gpus import LiveGpus
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.share.release import release_shares

AT_START = "pending: attached at the next start of the VM"
AT_STOP = "pending: detached when the VM stops"
BY_GUEST = "pending: the guest was asked to release it"


def is_pending(lease: Lease, *, was_running: bool) -> bool:
    """True if the guest that runs, or has just run, has the device no more or not yet."""
    return lease.state is LeaseState.RELEASING or (was_running and lease.state is LeaseState.RESERVED)


def is_with_guest(host: HostSession, vm: Vm, lease: Lease) -> bool:
    """True if the running domain has a device of the share, or its QEMU still holds it."""
    if LiveGpus(host.hypervisor, vm.domain_name, uuid=vm.uuid).has(lease.share):
        return True
    try:
        return guest.is_held(host, vm, lease)
    except AgentProblem as problem:
        if problem.code is ProblemCode.NOT_FOUND:
            return False
        raise


def release_pending(services: Services, host: HostSession, vm: Vm, leases: Sequence[Lease]) -> tuple[Lease, ...]:
    """Release the GPUs that a running guest no longer has. Returns those that it still has."""
    kept = tuple(one for one in leases if is_with_guest(host, vm, one))
    release_shares(services, host, [one for one in leases if one not in kept])
    return kept


def detach_now(
    services: Services, host: HostSession, vm: Vm, leases: Sequence[Lease], timeout_s: float
) -> tuple[Lease, ...]:
    """Ask the guest to let go of GPUs whose leases are `releasing`. Returns those that it still has afterwards.

    Raises DomainRejected with what libvirt answered. A dry run that goes on takes it that the guest lets go of all.
    """
    if services.goes_on:
        release_shares(services, host, leases)
        return ()
    gpus = LiveGpus(host.hypervisor, vm.domain_name, uuid=vm.uuid)
    for lease in leases:
        if gpus.detach(lease.share, timeout_s=timeout_s) is LiveChange.NEXT_START:
            services.say(f"{vm.printed_name}: libvirt on {vm.host} detaches no GPU from a domain that runs")
    return release_pending(services, host, vm, leases)
