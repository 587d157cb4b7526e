# SPDX-License-Identifier: Apache-2.0
"""The ways of a share back to the pool: all of them lead through the health gate.

Of a lease: the state first, then the device, its reset and its health; then the lease is gone.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import HostError
from vgpuctl.guests.facts.domain_facts import DomainFact
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.vm import Vm
from vgpuctl.planner.adoption import shares_of_devices
from vgpuctl.scheduler.guest_place import footprint_of_vm
from vgpuctl.scheduler.relieve import relieve, with_guests_off
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.observations import note_facts
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.share.cpu_pins import give_cpus_back
from vgpuctl.usecases.share.health_gate import Released, prove, release_device
from vgpuctl.usecases.share.partitions import deactivate_partitions
from vgpuctl.usecases.share.quarantine import quarantine_killed


def release_shares(services: Services, host: HostSession, leases: Sequence[Lease]) -> None:
    """Release the devices of `leases`; a device that is gone already (a reboot) is fine.

    Each is reset, and its GPU must prove healthy to stay in the pool (health_gate.py); the leases end either way.
    The host is read again before, so that the next placement sees what is free.
    Raises the host's error; the lease that could not be released is then `broken` with the reason. A dry run that goes
    on takes all of them for healthy.
    """
    if not leases:
        return
    if services.goes_on:
        _as_released(services, host, leases)
        return
    with services.store.transaction() as session:
        for lease in leases:
            session.set_lease_state(lease.id, LeaseState.RELEASING)
    quarantine_killed(services, host, leases)
    facts = host.agent.facts()
    deactivate_partitions(host, [(one.vm_uuid, one.share) for one in leases], facts)
    released: list[Released] = []
    try:
        for lease in leases:
            with _broken_if_refused(services, lease):
                released.append(replace(release_device(host, lease.share, facts), lease=lease))
    finally:
        if released:
            facts = remember_facts(services, host)
            prove(services, host, released, facts)
    give_cpus_back(services, host, facts, {lease.vm_uuid for lease in leases})


def release_ended(services: Services, host: HostSession, leases: Sequence[Lease]) -> None:
    """Release the devices of leases that have ended in the store already, for the same proof and evidence.

    Something else keeps them from others: a reservation. Raises the host's error.
    """
    if not leases:
        return
    if services.goes_on:
        _as_released(services, host, leases)
        return
    facts = host.agent.facts()
    deactivate_partitions(host, [(one.vm_uuid, one.share) for one in leases], facts)
    released = [replace(release_device(host, lease.share, facts), lease=lease) for lease in leases]
    prove(services, host, released, remember_facts(services, host))


def release_strays(services: Services, host: HostSession, shares: Sequence[Share], vm_uuid: str = "") -> None:
    """Release devices that no lease is of, for the same proof and evidence. Raises the host's error.

    Nobody may use them: the caller has looked. vm_uuid: whose they were, where that is known. A dry run that goes on
    leaves them where they are.
    """
    if not shares or services.goes_on:
        return
    facts = host.agent.facts()
    deactivate_partitions(host, [(vm_uuid, one) for one in shares], facts)
    released = [release_device(host, share, facts) for share in shares]
    prove(services, host, released, remember_facts(services, host))


def release_cards_of(services: Services, host: HostSession, domain: DomainFact) -> None:
    """Release the whole cards and VFs that libvirt bound for a domain which is off and has no VM in the store.

    Those that a lease or a running domain has are left alone. Its vGPUs stay: `gc` finds them by themselves.
    """
    named = {device.device for device in domain.hostdevs}
    for other in host.hypervisor.domains():
        if other.state.is_active():
            named -= {device.device for device in other.hostdevs}
    with services.store.reading() as session:
        named -= {lease.share.function for lease in session.leases(host=host.name)}
    if not named:
        return
    facts = host.agent.facts()
    found = [shares_of_devices([device], facts) for device in sorted(named)]
    shares = [share for one in found if not isinstance(one, str) for share in one]
    bound = [one for one in shares if kind_of(one.sharing).is_bound_by_libvirt]
    release_strays(services, host, bound, domain.uuid)


def release_leases(session: Session, leases: Sequence[Lease]) -> None:
    """End leases in the store alone: nothing may be done on their host, or the VM gets others in the transaction.

    Their devices, if they are still there, pass the gate as strays, by `gc` or `uncordon-host`; those of a VM that is
    resized stay held until they have passed it (release_ended).
    """
    for lease in leases:
        session.set_lease_state(lease.id, LeaseState.GONE)


def _as_released(services: Services, host: HostSession, leases: Sequence[Lease]) -> None:
    """End leases in the rehearsed store. The host's facts are read without their devices from now on."""
    assert services.rehearsal is not None
    shares, vm_uuids = [lease.share for lease in leases], {lease.vm_uuid for lease in leases}
    services.rehearsal.leave_out(host.name, lambda facts: relieve(facts, shares, vm_uuids, ()))
    with services.store.transaction() as session:
        live = {lease.id for lease in session.leases(host=host.name)}
        release_leases(session, [lease for lease in leases if lease.id in live])
    remember_facts(services, host)


def as_off(services: Services, vm: Vm, leases: Sequence[Lease], text: str = "") -> None:
    """In a dry run that goes on: from now on the facts of a VM's host are read as after its guest's end.

    text: the change that is left out, by default that the domain is ended.
    Raises HostError and GuestError where the host or its libvirt does not answer.
    """
    released = [footprint_of_vm(vm, leases)]
    services.leave_out(
        vm.host, text or f"end domain {vm.domain_name}", lambda facts: with_guests_off(facts, {vm.uuid}, released)
    )


@contextlib.contextmanager
def _broken_if_refused(services: Services, lease: Lease) -> Iterator[None]:
    """Record why the device of a lease could not be released. Raises the host's error on."""
    try:
        yield
    except HostError as error:
        with services.store.transaction() as session:
            session.set_lease_state(lease.id, LeaseState.BROKEN, error.message)
        raise


def remember_facts(services: Services, host: HostSession) -> HostFacts:
    """Read the host and keep what it says in the store's cache."""
    asked_at = time.monotonic()
    facts = host.agent.facts()
    with services.store.transaction() as session:
        note_facts(session, host.name, facts, asked_at=asked_at)
    return facts
