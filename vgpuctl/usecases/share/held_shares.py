# SPDX-License-Identifier: Apache-2.0
"""Shares that are kept from others for a VM beside its leases, while it is moved or resized: by a reservation."""

from collections.abc import Sequence
from enum import StrEnum

from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.vm import Vm
from vgpuctl.sharing.kinds import takes_card
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.release import release_strays

HELD_FOR_S = 7200.0
"""How long shares are kept for a run that was killed: the copy of a large disk takes that long."""
HELD_UNTIL_RELEASED_S = 30 * 86400.0
"""How long devices that are still to be released are kept from others, if nobody runs `repair`."""


class HeldFor(StrEnum):
    """The reason; the reservation's name is it with the VM's UUID.

    move: shares on the new host. move-from: shares on the old one, of a VM that moved while it ran, until they are
    released. resize-to: shares that the VM gets. resize-from: shares that its leases no longer
    name, until their devices are released, or the VM has them back.
    """

    MOVE = "move"
    MOVE_FROM = "move-from"
    RESIZE_TO = "resize-to"
    RESIZE_FROM = "resize-from"


_UNTIL_RELEASED = (HeldFor.MOVE_FROM, HeldFor.RESIZE_FROM)


def hold(session: Session, vm: Vm, why: HeldFor, host: str, shares: Sequence[Share]) -> None:
    """Keep shares of a host from others, in place of those that were held for the same reason."""
    release_held_for(session, vm, why)
    now = session.now()
    name, gpus = _name(why, vm), vm.request.gpus
    end = now + (HELD_UNTIL_RELEASED_S if why in _UNTIL_RELEASED else HELD_FOR_S)
    held = Reservation(vm.request.tenant, name, gpus, host, tuple(shares), now, end)
    session.add_reservation(held, session.generation(host))


def release_held_for(session: Session, vm: Vm, why: HeldFor) -> None:
    """End what is held for a reason; nothing held is fine."""
    held = session.reservation(vm.request.tenant, _name(why, vm))
    if held is not None:
        session.cancel_reservation(held)


def release_all_held(session: Session, vm: Vm) -> None:
    """End everything that is held for a VM whose host is not to be touched."""
    for why in HeldFor:
        release_held_for(session, vm, why)


def held_shares(session: Session, vm: Vm) -> tuple[Reservation, ...]:
    """Everything that is held for a VM, for whatever reason."""
    names = {_name(why, vm) for why in HeldFor}
    return tuple(one for one in session.reservations() if one.tenant == vm.request.tenant and one.name in names)


def kept_for_vms(session: Session) -> dict[Reservation, Vm]:
    """Every reservation that keeps shares for a VM which is moved or resized, with the VM."""
    vms = {(vm.request.tenant, _name(why, vm)): vm for vm in session.vms() for why in HeldFor}
    return {one: vms[one.tenant, one.name] for one in session.reservations() if (one.tenant, one.name) in vms}


def is_for_resize(held: Reservation) -> bool:
    """True if shares are kept for a resize, False if they are for a move."""
    return held.name.startswith((f"{HeldFor.RESIZE_TO}-", f"{HeldFor.RESIZE_FROM}-"))


def release_held(services: Services, vm: Vm, held: Sequence[Reservation]) -> None:
    """End what a killed run held for a VM. Devices that its leases no longer name are released before.

    Raises the host's errors.
    """
    for one in held:
        if one.name in {_name(why, vm) for why in _UNTIL_RELEASED}:
            with services.store.reading() as session:
                live = session.leases(host=one.host)
            left = [share for share in one.shares if _is_left(share, live)]
            release_strays(services, services.host(one.host), left, vm.uuid)
        with services.store.transaction() as session:
            session.cancel_reservation(one)


def _is_left(share: Share, live: Sequence[Lease]) -> bool:
    """True if no lease is in the way of the share's release: of the same device once it is built, or of its card."""
    for lease in live:
        if lease.share.gpu == share.gpu and (takes_card(share) or takes_card(lease.share)):
            return False
        if lease.share.device == share.device and lease.state is not LeaseState.RESERVED:
            return False
    return True


def _name(why: HeldFor, vm: Vm) -> str:
    return f"{why}-{vm.uuid}"
