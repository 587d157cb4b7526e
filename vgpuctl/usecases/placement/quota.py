# SPDX-License-Identifier: Apache-2.0
"""Quotas at the moment a VM or its shares are taken."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.placement import Placement
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota import charge
from vgpuctl.quota.ceilings import above, ceilings_of, with_usual
from vgpuctl.quota.limits import Quota, exceeded, excesses, room_for
from vgpuctl.quota.resources import EACH, Resource
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services


def refuse_early(services: Services, *requests: VmRequest) -> None:
    """Raise QuotaExceeded for what is known before placing, so that the refusal names the quota and not the fleet.

    requests: of one tenant; all of them together are to fit.
    """
    with services.store.reading() as session:
        refuse_above_ceilings(session, requests)
        asked = reduce(charge.add, map(charge.of_request, map(session.with_usual, requests)))
        _refuse(session, _named_together(requests), asked)


def refuse_for_ever(session: Session, *requests: VmRequest) -> None:
    """Raise QuotaExceeded for requests of one tenant that would not fit together if it used nothing."""
    refuse_above_ceilings(session, requests)
    asked = reduce(charge.add, map(charge.of_request, map(session.with_usual, requests)))
    found = excesses(session.quotas(requests[0].tenant), {}, asked)
    if found:
        raise exceeded(_named_together(requests), found)


def refuse_above_ceilings(session: Session, requests: Sequence[VmRequest]) -> None:
    """Raise QuotaExceeded for a VM that would be above a ceiling with the defaults of its tenant."""
    for request in requests:
        session.require_below(session.with_usual(request), adds_up=False)


def refuse_over_quota(
    session: Session,
    request: VmRequest,
    leases: Sequence[Lease],
    *,
    is_new: bool = True,
    has_disks: bool = False,
) -> None:
    """Raise QuotaExceeded when the VM with these leases does not fit into its tenant's quotas.

    Call it in the transaction that takes them, before they are added. is_new False: only the shares are. has_disks: a
    new VM has its disks already, which count as used.
    """
    guest = (charge.of_guest if has_disks else charge.of_new_guest)(request) if is_new else {}
    _refuse(session, request, charge.add(guest, charge.of_shares(lease.share for lease in leases)), _held(leases))


def refuse_before_preemption(
    session: Session,
    requests: Sequence[VmRequest],
    leases: Sequence[Lease],
    given_back: Sequence[Lease],
    *,
    is_new: bool,
) -> None:
    """Raise QuotaExceeded when VMs of one tenant with these leases would not fit after others released theirs.

    No VM is to be preempted for a request that its own quota then refuses. given_back: leases of the victims.
    """
    guests = reduce(charge.add, map(charge.of_new_guest, map(session.with_usual, requests))) if is_new else {}
    asked = charge.add(guests, charge.of_shares(lease.share for lease in leases))
    own = charge.of_shares(lease.share for lease in given_back if lease.tenant == requests[0].tenant)
    net = {resource: max(0, amount - own.get(resource, 0)) for resource, amount in asked.items()}
    _refuse(session, _named_together(requests), net, _held(leases))


def refuse_placed_over_quota(
    session: Session, requests: Sequence[VmRequest], placements: Sequence[Placement], *, is_new: bool
) -> None:
    """Raise QuotaExceeded when VMs of one tenant would not fit together into its quotas where they would be placed."""
    guests = map(charge.of_new_guest, map(session.with_usual, requests)) if is_new else ()
    asked = charge.add(*guests, *(charge.of_shares(one.shares) for one in placements))
    _refuse(session, _named_together(requests), asked, [(one.host, held) for one in placements for held in one.shares])


def refuse_growth_over_quota(
    session: Session,
    before: VmRequest,
    after: VmRequest,
    ending: Sequence[Lease],
    leases: Sequence[Lease],
    *,
    have_ended: bool = False,
) -> None:
    """Raise QuotaExceeded when a VM that is resized would not fit: the difference counts.

    Call it while the `ending` leases live, or with have_ended once they ended for this; and before the new `leases` are
    added and the VM's request is replaced.
    """
    asked = charge.add(charge.of_guest(after), charge.of_shares(lease.share for lease in leases))
    given_back = charge.add(charge.of_guest(before), charge.of_shares(lease.share for lease in ending))
    net = {resource: max(0, amount - given_back.get(resource, 0)) for resource, amount in asked.items()}
    just_used = charge.of_shares(lease.share for lease in ending) if have_ended else {}
    _refuse(session, after, net, _held(leases), just_used)


def _refuse(
    session: Session,
    request: VmRequest,
    asked: Mapping[str, int],
    shares: Sequence[tuple[str, Share]] = (),
    just_used: Mapping[str, int] | None = None,
) -> None:
    """shares: what it would hold, with their hosts, where that is known already. just_used: counts as used too."""
    quotas = session.quotas(request.tenant)
    if not quotas:
        return
    used, asked = _with_hours(session, request, quotas, asked, shares)
    found = excesses(quotas, charge.add(used, just_used or {}), asked)
    if found:
        raise exceeded(request, found)


def _held(leases: Sequence[Lease]) -> list[tuple[str, Share]]:
    return [(lease.host, lease.share) for lease in leases]


def quota_room(session: Session, request: VmRequest, placement: Placement | None) -> dict[str, int]:
    """How many more VMs of this kind each quota of the tenant allows, by resource; of the quotas that limit them.

    A ceiling that the request is above allows none; one that it is below does not limit how many.
    placement: where one would go; without it framebuffer and MIG compute count only as far as the request names them.
    """
    quotas = session.quotas(request.tenant)
    if not quotas:
        return {}
    ceilings = ceilings_of(quotas)
    request = with_usual(request, ceilings)
    held = () if placement is None else placement.shares
    asked = charge.add(charge.of_new_guest(request), charge.of_shares(held)) if held else charge.of_request(request)
    shares = [] if placement is None else [(placement.host, one) for one in held]
    refusing = {EACH + one.name: 0 for one in above(request, ceilings)}
    return room_for(quotas, *_with_hours(session, request, quotas, asked, shares)) | refusing


def _with_hours(
    session: Session,
    request: VmRequest,
    quotas: Sequence[Quota],
    asked: Mapping[str, int],
    shares: Sequence[tuple[str, Share]],
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The tenant's use and the requested amounts, with GPU-hours where they are limited. shares: with their hosts."""
    used = session.used(request.tenant)
    if not request.gpus or not any(one.resource == Resource.GPU_HOURS and one.limit is not None for one in quotas):
        return used, asked
    used = charge.add(used, {Resource.GPU_HOURS: session.gpu_seconds_to_come(request.tenant)})
    declared = 0 if request.duration_s is None else session.gpu_seconds_of(shares, request.duration_s)
    return used, {**asked, Resource.GPU_HOURS: declared}


def _named_together(requests: Sequence[VmRequest]) -> VmRequest:
    return replace(requests[0], name=", ".join(one.name for one in requests))
