# SPDX-License-Identifier: Apache-2.0
"""The order of the queue under each policy, with ageing: whoever waits long enough comes first."""

from collections.abc import Mapping, Sequence

from vgpuctl import catalog
from vgpuctl.model.queue import QueueEntry, QueuePolicy, QueueSettings
from vgpuctl.quota.charge import Amounts, add, of_guest
from vgpuctl.quota.resources import Resource
from vgpuctl.sharing.kinds import asks_for_card

PRIORITY_STEP = 100
"""How much one ageing time adds to a priority: from one class of priorities nearly to the next."""

SHARE_STEP = 0.1
"""How much one ageing time takes from a tenant's dominant share."""

OPEN_END_S = 30 * 86_400.0
"""What a VM without a declared end counts as under `shortest-first`."""

_SHARED = (Resource.VCPUS, Resource.MEMORY, Resource.FRAMEBUFFER)


def in_order(
    entries: Sequence[QueueEntry],
    settings: QueueSettings,
    now: float,
    *,
    used: Mapping[str, Amounts],
    capacity: Amounts,
) -> list[QueueEntry]:
    """The entries, the next one first; equal ones by the time they came, then by id.

    used: what each tenant has, for `fair-share`. capacity: vCPUs, memory and framebuffer of the whole fleet.
    """
    came = sorted(entries, key=lambda one: (one.queued_at, one.id))
    if settings.policy is QueuePolicy.PRIORITY:
        return sorted(came, key=lambda one: -(one.priority + PRIORITY_STEP * _age(one, settings, now)))
    if settings.policy is QueuePolicy.SHORTEST_FIRST:
        return sorted(came, key=lambda one: _seconds(one) * 0.5 ** min(500.0, _age(one, settings, now)))
    if settings.policy is QueuePolicy.FAIR_SHARE:
        return _fair(came, settings, now, used, capacity)
    return came


def dominant_share(amounts: Amounts, capacity: Amounts) -> float:
    """The largest part that these amounts are of any resource of the fleet (DRF, NSDI'11)."""
    return max((amounts.get(name, 0) / capacity[name] for name in _SHARED if capacity.get(name)), default=0.0)


def demand(entry: QueueEntry) -> dict[str, int]:
    """The charge of an entry on the shared resources; framebuffer where its request or the catalogue has it."""
    framebuffer = 0
    for gpu in (gpu for request in entry.requests for gpu in request.gpus):
        size = gpu.exact_memory_mib or gpu.minimum_memory_mib or 0
        if gpu.profile is not None:
            boards = catalog.boards_with_type(gpu.profile)
            known = catalog.type_by_name(boards[0], gpu.profile) if boards else None
            size = known.fb_mib if known is not None else 0
        elif gpu.board is not None and asks_for_card(gpu):
            size = min((board.memory_mib for board in catalog.boards_named(gpu.board)), default=0)
        framebuffer += size * gpu.count
    return {**add(*map(of_guest, entry.requests)), Resource.FRAMEBUFFER: framebuffer}


def has_aged(entry: QueueEntry, settings: QueueSettings, now: float) -> bool:
    """True if the entry has waited so long that nobody may overtake it any more."""
    return _age(entry, settings, now) >= 1


def _fair(
    came: Sequence[QueueEntry], settings: QueueSettings, now: float, used: Mapping[str, Amounts], capacity: Amounts
) -> list[QueueEntry]:
    """One after the other, the tenant with the lowest dominant share, which then counts what it gets."""
    has = {tenant: dict(amounts) for tenant, amounts in used.items()}
    waiting = list(came)
    ordered: list[QueueEntry] = []

    def share(one: QueueEntry) -> float:
        return dominant_share(has.get(one.request.tenant, {}), capacity) - SHARE_STEP * _age(one, settings, now)

    while waiting:
        following = min(waiting, key=share)
        waiting.remove(following)
        ordered.append(following)
        tenant = following.request.tenant
        has[tenant] = add(has.get(tenant, {}), demand(following))
    return ordered


def _age(entry: QueueEntry, settings: QueueSettings, now: float) -> float:
    return max(0.0, now - entry.queued_at) / settings.ageing_s


def _seconds(entry: QueueEntry) -> float:
    return OPEN_END_S if entry.duration_s is None else entry.duration_s
