# SPDX-License-Identifier: Apache-2.0
"""Release the shares of a VM: the state first, then the device, its reset and its health; then the lease is gone."""

import contextlib
from collections.abc import Iterator, Sequence

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import HostError
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.usecases.support.observations import note_facts
from vgpuctl.usecases.support.services import HostSession, Services
from vgpuctl.usecases.vm.cpu_pins import give_cpus_back
from vgpuctl.usecases.vm.health_gate import Freed, free_device, prove
from vgpuctl.usecases.vm.quarantine import quarantine_killed


def release_shares(services: Services, host: HostSession, leases: Sequence[Lease]) -> None:
    """Release the devices of `leases`; a device that is gone already (a reboot) is fine.

    Each is reset, and its GPU must prove healthy to stay in the pool (health_gate.py); the leases end either way.
    The host is read again before, so that the next placement sees what is free.
    Raises the host's error; the lease that could not be released is then `broken` with the reason.
    """
    if not leases:
        return
    with services.store.transaction() as session:
        for lease in leases:
            session.set_lease_state(lease.id, LeaseState.RELEASING)
    quarantine_killed(host, leases)
    facts = host.agent.facts()
    freed: list[Freed] = []
    try:
        for lease in leases:
            with _broken_if_refused(services, lease):
                freed.append(free_device(host, lease, facts))
    finally:
        if freed:
            facts = remember_facts(services, host)
            prove(services, host, freed, facts)
    give_cpus_back(services, host, facts, {lease.vm_uuid for lease in leases})


def settle_leases(services: Services, leases: Sequence[Lease]) -> None:
    """End leases of a fenced host in the store alone: nobody knows of their devices until the host is trusted again."""
    with services.store.transaction() as session:
        for lease in leases:
            session.set_lease_state(lease.id, LeaseState.GONE)


@contextlib.contextmanager
def _broken_if_refused(services: Services, lease: Lease) -> Iterator[None]:
    """Record why the device of a lease could not be freed. Raises the host's error on."""
    try:
        yield
    except HostError as error:
        with services.store.transaction() as session:
            session.set_lease_state(lease.id, LeaseState.BROKEN, error.message)
        raise


def remember_facts(services: Services, host: HostSession) -> HostFacts:
    """Read the host and keep what it says in the store's cache."""
    facts = host.agent.facts()
    with services.store.transaction() as session:
        note_facts(session, host.name, facts)
    return facts
