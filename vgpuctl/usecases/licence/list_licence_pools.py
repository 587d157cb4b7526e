# SPDX-License-Identifier: Apache-2.0
"""list-licence-pools: the seats of every pool, who holds them, when others come back, and who waits."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.errors import UsageError
from vgpuctl.model.licence import LicencePool, LicenceSeat
from vgpuctl.model.natural_order import natural_path
from vgpuctl.model.vm import VmRequest, printed_name
from vgpuctl.quota.licences import editions_of
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.seats.licences import waits_for_seat


@dataclass(frozen=True)
class LicencePoolState:
    """One pool. held: seats of VMs. coming_back: seats that nobody holds, and that the server still counts.

    tenants: seats by tenant, both kinds. seats: each with its VM. waiting: VMs of the queue that wait for such a seat.
    """

    pool: LicencePool
    held: int
    coming_back: int
    free: int
    tenants: Mapping[str, int]
    seats: tuple[LicenceSeat, ...]
    waiting: tuple[str, ...]


def list_licence_pools(services: Services, names: Sequence[str] = ()) -> list[LicencePoolState]:
    """The state of each pool, or of these. Raises NotFound."""
    with services.store.reading() as session:
        pools = [session.licence_pool(name) for name in names] if names else session.licence_pools()
        seats = session.licence_seats()
        waiting = [one for entry in session.queue() if waits_for_seat(session, entry) for one in entry.requests]
    return [_state_of(pool, [one for one in seats if one.pool == pool.name], waiting) for pool in pools]


def _state_of(pool: LicencePool, seats: Sequence[LicenceSeat], waiting: Sequence[VmRequest]) -> LicencePoolState:
    held = sum(one.released_at is None for one in seats)
    tenants = Counter(one.tenant for one in seats)
    return LicencePoolState(
        pool,
        held,
        len(seats) - held,
        max(0, pool.seats - len(seats)),
        dict(sorted(tenants.items())),
        tuple(sorted(seats, key=lambda one: natural_path(printed_name(one.tenant, one.vm_name)))),
        tuple(printed_name(one.tenant, one.name) for one in waiting if _would_take(one, pool)),
    )


def _would_take(request: VmRequest, pool: LicencePool) -> bool:
    try:
        return pool.edition in editions_of(request) and request.licence_pool in (None, pool.name)
    except UsageError:
        return False
