# SPDX-License-Identifier: Apache-2.0
"""Release the shares of a VM: the state first, then the device, then the lease is gone."""

from collections.abc import Sequence

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import HostError
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.planner.plan import plan_release
from vgpuctl.usecases.support.observations import note_facts
from vgpuctl.usecases.support.services import HostSession, Services
from vgpuctl.usecases.vm.cpu_pins import give_cpus_back
from vgpuctl.usecases.vm.quarantine import quarantine_killed
from vgpuctl.usecases.vm.shares import apply


def release_shares(services: Services, host: HostSession, leases: Sequence[Lease]) -> None:
    """Release the devices of `leases`; a device that is gone already (a reboot) is fine.

    The host is read again at the end, so that the next placement sees what is free.
    Raises the host's error; the lease that could not be released is then `broken` with the reason.
    """
    if not leases:
        return
    with services.store.transaction() as session:
        for lease in leases:
            session.set_lease_state(lease.id, LeaseState.RELEASING)
    quarantine_killed(host, leases)
    facts = host.agent.facts()
    for lease in leases:
        try:
            apply(host, plan_release(lease.share, facts).steps)
        except HostError as error:
            with services.store.transaction() as session:
                session.set_lease_state(lease.id, LeaseState.BROKEN, error.message)
            raise
        with services.store.transaction() as session:
            session.set_lease_state(lease.id, LeaseState.GONE)
        services.say(f"{lease.tenant}.{lease.vm_name}: {lease.share.profile} on {lease.share.function} released")
    facts = remember_facts(services, host)
    give_cpus_back(services, host, facts, {lease.vm_uuid for lease in leases})


def remember_facts(services: Services, host: HostSession) -> HostFacts:
    """Read the host and keep what it says in the store's cache."""
    facts = host.agent.facts()
    with services.store.transaction() as session:
        note_facts(session, host.name, facts)
    return facts
