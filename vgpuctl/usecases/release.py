# SPDX-License-Identifier: Apache-2.0
"""Give the slices of a VM back to the pool: the state first, then the device, then the lease is gone."""

from collections.abc import Sequence

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import HostError
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.planner.plan import plan_release
from vgpuctl.usecases.services import HostSession, Services


def release_slices(services: Services, host: HostSession, leases: Sequence[Lease]) -> None:
    """Take the devices of `leases` back; a device that is gone already (a reboot) is fine.

    Raises the host's error; the lease that could not be taken back is then `broken` with the reason.
    """
    for lease in leases:
        with services.store.transaction() as session:
            session.set_lease_state(lease.id, LeaseState.RELEASING)
        facts: HostFacts = host.agent.facts()
        try:
            host.agent.apply(plan_release(lease.slice, facts).steps)
        except HostError as error:
            with services.store.transaction() as session:
                session.set_lease_state(lease.id, LeaseState.BROKEN, error.message)
            raise
        with services.store.transaction() as session:
            session.set_lease_state(lease.id, LeaseState.GONE)
        services.say(f"{lease.tenant}.{lease.vm_name}: {lease.slice.profile} on {lease.slice.function} given back")
