# SPDX-License-Identifier: Apache-2.0
"""forget-host: everything that the store has of a dead host is settled: VMs, shares, quota, addresses, volumes."""

from dataclasses import dataclass

from vgpuctl.errors import InventoryError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.network import Network
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume
from vgpuctl.usecases.disk.kept_vms import forget_kept
from vgpuctl.usecases.maintenance.fence_host import fence_host
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.observed.unlisted_hosts import forget_readings, has_objects
from vgpuctl.usecases.placement.reservations import record_cancellation
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.release import release_leases
from vgpuctl.usecases.vm.delete_vm import delete_vm


@dataclass(frozen=True)
class Forgotten:
    """The store's objects of a host."""

    vms: tuple[Vm, ...]
    volumes: tuple[Volume, ...]
    networks: tuple[Network, ...]
    reservations: tuple[Reservation, ...]

    def is_nothing(self) -> bool:
        """True if the store has nothing of it."""
        return not (self.vms or self.volumes or self.networks or self.reservations)


def known_of(services: Services, host: str) -> Forgotten:
    """Read what the store has of a host. Raises InventoryError for one that the inventory does not list.

    Unless nothing but readings of it is left.
    """
    if not _is_leftover(services, host):
        _require_listed(services, host)
    with services.store.reading() as session:
        return Forgotten(
            tuple(session.vms(host=host)),
            tuple(session.volumes(host=host)),
            tuple(one for one in session.networks() if one.request.host == host),
            tuple(one for one in session.reservations() if one.host == host),
        )


def forget_host(services: Services, host: str, *, is_dead: bool, reason: str) -> Forgotten | None:
    """Fence a host and remove all that the store has of it, without contacting it.

    Returns what was removed, None when it is fenced and the store has nothing of it.

    Of a host that the inventory does not list, only what was read is dropped, without a fence: nothing of it runs for
    anybody. One that has VMs has to be listed.
    The fence stays: a host of this name that answers later is not trusted until `uncordon-host`. Its VMs' data on
    shared storage stays where it is, without a VM. Raises what `fence_host` raises, and ConcurrentChange while a run
    works on one of its VMs; the same command goes on.
    """
    if _is_leftover(services, host):
        with services.store.transaction() as session:
            forget_readings(session, host)
            session.add_event(EventKind.HOST_FORGOTTEN, host, reason, host=host)
        services.say(f"{host}: forgotten; no inventory lists it")
        return Forgotten((), (), (), ())
    was_fenced = is_host_fenced(services, host)
    fence_host(services, host, is_dead=is_dead, reason=reason)
    known = known_of(services, host)
    if was_fenced and known.is_nothing() and not _has_rows(services, host):
        return None
    for vm in known.vms:
        delete_vm(services, vm)
    with services.store.transaction() as session:
        for volume in session.volumes(host=host):
            session.forget_volume(volume)
        for kept in session.kept_vms(host=host):
            forget_kept(session, kept, "its host was forgotten")
        for network in known.networks:
            session.delete_network(network.id)
        for reservation in known.reservations:
            record_cancellation(session, reservation)
        release_leases(session, session.leases(host=host))
        forget_readings(session, host)
        session.add_event(
            EventKind.HOST_FORGOTTEN,
            host,
            reason,
            host=host,
            before={
                "vms": [vm.printed_name for vm in known.vms],
                "volumes": [f"{one.pool}/{one.name}" for one in known.volumes],
                "networks": [one.printed_name for one in known.networks],
                "reservations": [f"{one.tenant}/{one.name}" for one in known.reservations],
            },
        )
    services.say(f"{host}: forgotten")
    return known


def _require_listed(services: Services, host: str) -> None:
    """Raise InventoryError for a host that the inventory does not list; the hint says what can be done with it."""
    with services.store.reading() as session:
        has_left = has_objects(session, host)
    try:
        services.inventory.require(host)
    except InventoryError as unknown:
        if has_left:
            raise InventoryError(
                f"the store has VMs, disks or other objects of {host}, which no inventory lists",
                hint="list it in the inventory again, then give this command again",
            ) from unknown
        raise InventoryError(
            f"neither the inventory nor the store knows host {host!r}, so there is nothing to forget",
            hint=unknown.hint,
        ) from unknown


def _is_leftover(services: Services, host: str) -> bool:
    """True for a host that was read once, is in the inventory no more, and has nothing that the store would lose."""
    if host in services.inventory.hosts():
        return False
    with services.store.reading() as session:
        return host in session.recorded_hosts() and not has_objects(session, host)


def _has_rows(services: Services, host: str) -> bool:
    """True if the store has leases or facts of a host."""
    with services.store.reading() as session:
        return bool(session.leases(host=host)) or session.facts(host) is not None
