# SPDX-License-Identifier: Apache-2.0
"""Seats of licences at the moment a VM or its shares are taken. A site without licence pools counts none."""

import base64
import binascii
import contextlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import NoLicence, NotFound, QuotaExceeded, UsageError
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.licence import Edition, LicencePool, LicenceSeat
from vgpuctl.model.licence_token import TokenClaims, read_token
from vgpuctl.model.plural import all_are, counted
from vgpuctl.model.queue import QueueEntry
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.quota.licences import WantedSeat, choose_pool, editions_of
from vgpuctl.quota.limits import Excess, excesses
from vgpuctl.quota.resources import LICENCES
from vgpuctl.store.store import Session

_SHOWN = 12


@dataclass(frozen=True)
class SeatNeed:
    """The licence that one VM needs. last: the pool whose token its guest may have."""

    request: VmRequest
    wanted: WantedSeat
    last: LicencePool | None = None


def take_seat(session: Session, vm: Vm, leases: Sequence[Lease], *, may_exceed: bool = False) -> LicencePool | None:
    """Take the licence of a VM, in the transaction that takes its leases; a VM that holds a fitting one keeps it.

    Returns the pool of its seat; None where the VM needs none, or without any pool. may_exceed: its guest runs with
    a licence already, which is counted even where the pool has no free seat.
    Raises NoLicence when every seat is taken, QuotaExceeded, and UsageError for a licence that its GPUs do not run or
    a token of another server.
    """
    pools = session.licence_pools()
    if not pools:
        return None
    need = _need_of(session, vm.request, [lease.share for lease in leases], pools, uuid=vm.uuid, may_exceed=may_exceed)
    own = session.licence_seats(vm_uuid=vm.uuid)
    held = next((one for one in own if one.released_at is None), None)
    by_name = {pool.name: pool for pool in pools}
    if held is not None and need is not None and need.wanted.fits(by_name[held.pool]):
        return by_name[held.pool]
    if held is not None:
        session.release_licence_seat(vm.uuid)
    if need is None:
        return None
    taken = Counter(one.pool for one in session.licence_seats() if one.vm_uuid != vm.uuid)
    others = Counter(one.edition for one in session.licence_seats(tenant=vm.request.tenant) if one.vm_uuid != vm.uuid)
    pool = _choose(session, need, pools, taken, others, may_exceed=may_exceed)
    if pool is None:
        return None
    seat = LicenceSeat(
        pool.name,
        vm.request.tenant,
        vm.uuid,
        vm.request.name,
        pool.edition,
        session.now(),
        used_at=session.now() if may_exceed else None,
    )
    session.take_licence_seat(seat)
    return pool


def refuse_without_seats(
    session: Session,
    requests: Sequence[VmRequest],
    shares: Sequence[Sequence[Share]] | None = None,
    *,
    freed: Collection[str] = (),
    uuids: Collection[str] = (),
) -> LicencePool | None:
    """Raise what take_seat would raise for VMs of one tenant together; nothing is written.

    shares: of each request, where it would be; without them only what the requests name counts. freed: UUIDs of VMs
    whose seats would be free before. uuids: of the VMs themselves, where they exist. Returns the pool of the last one.
    """
    pools = session.licence_pools()
    if not pools or not requests:
        return None
    seats = session.licence_seats()
    left = [one for one in seats if one.vm_uuid not in uuids and not (one.vm_uuid in freed and one.released_at is None)]
    return next((one for one in reversed(_choose_together(session, requests, shares, pools, left)) if one), None)


def _choose_together(
    session: Session,
    requests: Sequence[VmRequest],
    shares: Sequence[Sequence[Share]] | None,
    pools: Sequence[LicencePool],
    seats: Sequence[LicenceSeat],
) -> list[LicencePool | None]:
    """The pool of each of these VMs of one tenant, None for one that needs no licence. seats: those of others."""
    taken = Counter(one.pool for one in seats)
    used = Counter(one.edition for one in seats if one.tenant == requests[0].tenant)
    chosen: list[LicencePool | None] = []
    for number, request in enumerate(requests):
        need = _need_of(session, request, None if shares is None else shares[number], pools)
        pool = None if need is None else _choose(session, need, pools, taken, used)
        if pool is not None:
            taken[pool.name] += 1
            used[pool.edition] += 1
        chosen.append(pool)
    return chosen


@dataclass(frozen=True)
class SeatsToCome:
    """When VMs of one tenant have their seats together, and the seats that they take then."""

    at: float
    seats: tuple[LicenceSeat, ...]


def seats_to_come(session: Session) -> list[LicenceSeat]:
    """Every seat that is taken now, with the time when it comes back: of a VM with a declared end, that end."""
    ends = {vm.uuid: vm.ends_at for vm in session.vms()}
    return [
        one if one.released_at else replace(one, released_at=ends.get(one.vm_uuid)) for one in session.licence_seats()
    ]


def first_seats(
    session: Session,
    requests: Sequence[VmRequest],
    shares: Sequence[Sequence[Share]],
    seats: Sequence[LicenceSeat],
    not_before: float,
) -> SeatsToCome | None:
    """The first time from not_before on at which there are seats for VMs of one tenant; None as far as that is known.

    shares: of each. seats: those of others, a seat without a time comes back at no known one.
    """
    pools = session.licence_pools()
    if not pools:
        return SeatsToCome(not_before, ())
    backs = {one.released_at for one in seats if one.released_at is not None}
    for at in sorted({not_before, *(back for back in backs if back > not_before)}):
        left = [one for one in seats if one.released_at is None or one.released_at > at]
        with contextlib.suppress(NoLicence, QuotaExceeded, UsageError, NotFound):
            chosen = zip(requests, _choose_together(session, requests, shares, pools, left), strict=True)
            return SeatsToCome(at, tuple(_seat_at(at, one, pool) for one, pool in chosen if pool is not None))
    return None


def _seat_at(at: float, request: VmRequest, pool: LicencePool) -> LicenceSeat:
    """The seat of a VM that does not exist yet, and that has it from then on for as long as it runs."""
    end = None if request.duration_s is None else at + request.duration_s
    return LicenceSeat(pool.name, request.tenant, "", request.name, pool.edition, at, released_at=end)


def free_seats(session: Session, request: VmRequest) -> int | None:
    """How many VMs of this kind the licences allow now; None where it needs none, or without any pool."""
    pools = session.licence_pools()
    if not pools:
        return None
    need = _need_of(session, request, None, pools)
    if need is None:
        return None
    taken = Counter(one.pool for one in session.licence_seats())
    return sum(max(0, pool.seats - taken[pool.name]) for pool in pools if need.wanted.fits(pool))


def _need_of(
    session: Session,
    request: VmRequest,
    shares: Sequence[Share] | None,
    pools: Sequence[LicencePool],
    *,
    uuid: str | None = None,
    may_exceed: bool = False,
) -> SeatNeed | None:
    """None for a VM that needs no licence. may_exceed: it runs already, so it is counted and not refused."""
    try:
        editions = editions_of(request, shares)
    except UsageError:
        if may_exceed:
            return None
        raise
    if not editions:
        return None
    if request.licence_pool is not None and request.licence_pool not in {pool.name for pool in pools}:
        session.licence_pool(request.licence_pool)  # raises NotFound
    token = request.cloud_init.licence_token
    servers = None
    if token is not None and token.has_content():
        servers = _servers_of(request, pools, editions)
    last_name = None if uuid is None else session.last_licence_pool(uuid)
    last = next((pool for pool in pools if pool.name == last_name), None)
    wanted = WantedSeat(editions, request.licence_pool, servers)
    if not may_exceed and not any(wanted.fits(pool) for pool in pools):
        raise _no_pool(request, wanted, pools)
    return SeatNeed(request, wanted, last)


def _servers_of(
    request: VmRequest, pools: Sequence[LicencePool], editions: Sequence[Edition]
) -> tuple[str, ...] | None:
    """The servers that the VM's own token names; None where no pool names one.

    Raises UsageError for a token of another server.
    """
    fitting = [pool for pool in pools if pool.edition in editions and request.licence_pool in (None, pool.name)]
    if all(pool.server is None for pool in fitting):
        return None
    token = request.cloud_init.licence_token
    assert token is not None
    servers = token_claims(token, what=f"the licence token of VM {request.name}").servers
    if not any(pool.server is None or pool.server in servers for pool in fitting):
        known = ", ".join(sorted({f"{pool.server} ({pool.name})" for pool in fitting}))
        raise UsageError(
            f"VM {request.name} brings a token of another server: it names {', '.join(servers)}, "
            f"and its licence is counted on {known}",
            hint="leave the token out to get the pool's, or name the pool of that server with --licence-pool",
        )
    return servers


def token_claims(encoded: SecretText, *, what: str = "the licence token") -> TokenClaims:
    """The claims of a token, which is kept in base64. Raises UsageError, which shows none of it."""
    try:
        content = base64.b64decode(encoded.reveal(), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        raise UsageError(f"{what} is no client configuration token: it is no text") from None
    return read_token(content, what=what)


def _choose(
    session: Session,
    need: SeatNeed,
    pools: Sequence[LicencePool],
    taken: Counter[str],
    used: Counter[Edition],
    *,
    may_exceed: bool = False,
) -> LicencePool | None:
    """The pool for one more seat. used: the tenant's seats by edition. Raises NoLicence and QuotaExceeded."""
    quotas = () if may_exceed else session.quotas(need.request.tenant)
    refused: list[Excess] = []
    allowed = []
    for pool in pools:
        name = f"{LICENCES}{pool.edition}"
        excess = excesses(quotas, {name: used[pool.edition]}, {name: 1})
        refused += excess if need.wanted.fits(pool) else []
        if not excess:
            allowed.append(pool)
    found = choose_pool(allowed, taken, need.wanted, last=need.last, may_exceed=may_exceed)
    if found is None and not may_exceed:
        if refused and not any(need.wanted.fits(pool) for pool in allowed):
            raise _over_quota(need.request, refused)
        raise _all_taken(session, need, pools, taken)
    return found


def _over_quota(request: VmRequest, refused: Sequence[Excess]) -> QuotaExceeded:
    first = refused[0]
    return QuotaExceeded(
        f"VM {request.name} does not fit into the quota of tenant {request.tenant}: {first.resource}",
        context=list(dict.fromkeys(map(str, refused))),
        hint=f"stop VMs of {request.tenant}, or raise it: "
        f"vgpuctl set-quota {request.tenant} {first.resource}={first.used + first.asked}",
        short=f"over the quota of tenant {request.tenant}",
    )


def _no_pool(request: VmRequest, wanted: WantedSeat, pools: Sequence[LicencePool]) -> NoLicence:
    names = " or ".join(wanted.editions)
    pool = "" if wanted.pool is None else f" named {wanted.pool}"
    return NoLicence(
        f"VM {request.name} needs a licence of edition {names}, and there is no pool{pool} of it",
        context=[f"{one.name}: edition {one.edition}, {counted(one.seats, 'seat')}" for one in pools],
        hint=f"run `vgpuctl create-licence-pool NAME --edition {wanted.editions[0]} --seats NUMBER`",
        stays=True,
    )


def _all_taken(session: Session, need: SeatNeed, pools: Sequence[LicencePool], taken: Counter[str]) -> NoLicence:
    """Say who has the seats, how many of them must come back before one is free, and when that is, where it is known.

    Of several pools that fit, the one that lacks the fewest seats tells. taken: seats by pool.
    """
    fitting = {pool.name: pool for pool in pools if need.wanted.fits(pool)}
    seats = [one for one in session.licence_seats() if one.pool in fitting]
    seats.sort(key=lambda one: (one.released_at is None, one.released_at or one.taken_at, one.vm_name))
    lines = [session.describe_seat(one) for one in seats[:_SHOWN]]
    if len(seats) > _SHOWN:
        lines.append(f"{len(seats) - _SHOWN} more")
    names = " or ".join(need.wanted.editions)
    missing, name = min((taken[pool.name] - pool.seats + 1, pool.name) for pool in fitting.values())
    coming = [one for one in seats if one.pool == name and one.released_at is not None]
    last = coming[missing - 1] if len(coming) >= missing else None
    back = ""
    if missing > 1:
        back = f"; {taken[name]} are in use in {name}, so {missing} must come back before one is free"
    if last is not None:
        back += f"; {session.describe_seat(last).partition(': ')[2]}"
    stop = "a VM that holds one" if missing == 1 else f"{missing} VMs that hold one"
    wait = "" if last is None else ", wait"
    return NoLicence(
        f"{all_are(sum(pool.seats for pool in fitting.values()), 'seat', f' of licences of edition {names}')} taken "
        f"for VM {need.request.name}{back}",
        context=lines,
        hint=f"stop {stop}{wait}, or add --queue; if the server has more seats: `vgpuctl set-licence-pool {name} "
        f"--seats {taken[name] + 1}`; `vgpuctl list-licence-pools {name}` shows every seat",
        stays=True,
    )


def waits_for_seat(session: Session, entry: QueueEntry) -> bool:
    """True if the seats that are free now are too few for the VMs of an entry of the queue."""
    there = [session.vm(one.tenant, one.name) for one in entry.requests] if entry.kind.starts_again() else []
    try:
        refuse_without_seats(session, entry.requests, uuids={vm.uuid for vm in there if vm is not None})
    except NoLicence:
        return True
    except (QuotaExceeded, UsageError, NotFound):
        return False  # it waits for something else
    return False


def shortages(session: Session) -> list[str]:
    """A sentence for each licence pool with too few seats for its VMs; none where all may start again."""
    pools = session.licence_pools()
    held = Counter(one.pool for one in session.licence_seats() if one.released_at is None)
    found = [
        f"licence pool {pool.name}: {held[pool.name]} VMs hold its {counted(pool.seats, 'seat')}, "
        f"{held[pool.name] - pool.seats} more than there are; one that stops cannot start again before others have"
        for pool in pools
        if held[pool.name] > pool.seats
    ]
    leases = session.leases()
    without: dict[str, list[str]] = {}
    for vm in session.vms() if pools else ():
        if vm.state not in (VmState.RUNNING, VmState.STOPPED):
            continue
        shares = [lease.share for lease in leases if lease.vm_uuid == vm.uuid]
        try:
            editions = editions_of(vm.request, shares or None)
        except UsageError:
            continue
        if editions and not any(WantedSeat(editions, vm.request.licence_pool).fits(pool) for pool in pools):
            without.setdefault(" or ".join(editions), []).append(vm.printed_name)
    for edition, names in sorted(without.items()):
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        found.append(f"no licence pool is of edition {edition}, so these VMs cannot start again: {shown}")
    return found


def settle_seats(session: Session, *, dry_run: bool = False) -> list[tuple[str, str]]:
    """Make the seats agree with the VMs: of VMs that are gone they come back, VMs that run hold one.

    Returns each VM with what was found. Nothing is refused: a guest that runs has its licence already.
    """
    found = []
    for seat in session.stray_licence_seats():
        found.append((seat.vm_name, f"a seat of licence pool {seat.pool} is held by a VM that is gone"))
        if not dry_run:
            session.release_licence_seat(seat.vm_uuid)
    pools = session.licence_pools()
    if not pools:
        return found
    holding = {one.vm_uuid for one in session.licence_seats() if one.released_at is None}
    leases = session.leases()
    for vm in session.vms():
        own = [lease for lease in leases if lease.vm_uuid == vm.uuid]
        if vm.state is VmState.RUNNING and vm.uuid not in holding:
            shares = [one.share for one in own]
            need = _need_of(session, vm.request, shares, pools, uuid=vm.uuid, may_exceed=True)
            if need is None or choose_pool(pools, {}, need.wanted, may_exceed=True) is None:
                continue
            found.append((vm.printed_name, "it runs and holds no seat of a licence pool"))
            if not dry_run:
                take_seat(session, vm, own, may_exceed=True)
        elif vm.state is VmState.STOPPED and not vm.is_on_its_way and vm.uuid in holding:
            found.append((vm.printed_name, "it is stopped and holds a seat of a licence pool"))
            if not dry_run:
                session.release_licence_seat(vm.uuid)
    return found
