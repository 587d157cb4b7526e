# SPDX-License-Identifier: Apache-2.0
"""create-tenant, set-quota and list-tenants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import TenantDiffers, UsageError
from vgpuctl.model.preemption import USUAL_POLICY, PreemptMode, Reclaim, TenantPolicy
from vgpuctl.model.times import format_duration
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc import Contact
from vgpuctl.quota.limits import Quota, changed
from vgpuctl.quota.resources import format_amount
from vgpuctl.store.store import Session
from vgpuctl.usecases.support.services import Services

Amounts = Mapping[str, int | None]


@dataclass(frozen=True)
class QuotaUse:
    """One quota and what is used of it, in the quota's unit (vgpuctl.quota.resources)."""

    resource: str
    used: int
    limit: int | None
    guaranteed: int | None
    borrowed: int


@dataclass(frozen=True)
class ListedTenant:
    """One tenant: how many VMs it has, the pools granted to it, its quotas, and whom to ask about it."""

    tenant: str
    vms: int
    pools: tuple[str, ...]
    quotas: tuple[QuotaUse, ...]
    contact: str | None = None
    policy: TenantPolicy = USUAL_POLICY


def create_tenant(
    services: Services,
    name: str,
    *,
    limits: Amounts | None = None,
    guaranteed: Amounts | None = None,
    pools: Sequence[str] = (),
    policy: Mapping[str, object] | None = None,
) -> bool:
    """Add a tenant with quotas, pools and parts of a preemption policy. Returns False when it is there already, so.

    A tenant that is there is never changed. Raises TenantDiffers when it has not got what is named, UsageError for a
    name that cannot be used, NotFound for a pool that is not there; then nothing is added.
    """
    check_name(name, what="tenant")
    with services.store.transaction() as session:
        if not session.add_tenant(name):
            _refuse_other(session, name, limits or {}, guaranteed or {}, pools, policy or {})
            return False
        session.add_event("tenant-created", name)
        _set(session, name, limits or {}, guaranteed or {})
        for pool in pools:
            session.grant_pool(pool, name)
        if policy:
            session.set_policy(name, replace(USUAL_POLICY, **policy))  # type: ignore[arg-type]
        return True


def _refuse_other(
    session: Session,
    name: str,
    limits: Amounts,
    guaranteed: Amounts,
    pools: Sequence[str],
    policy: Mapping[str, object],
) -> None:
    """Raise TenantDiffers when the tenant has not got everything that is named; the rest is ignored."""
    there = {quota.resource: quota for quota in session.quotas(name)}
    lines = []
    for word, named in (("limit", limits), ("guaranteed", guaranteed)):
        for resource, amount in named.items():
            has = getattr(there.get(resource, Quota(resource)), word)
            if has != amount:
                shown = ["none" if one is None else format_amount(resource, one) for one in (has, amount)]
                lines.append(f"{resource} {word}: {shown[0]} there, {shown[1]} wanted")
    has_policy = session.tenant(name).policy
    for part, wanted in policy.items():
        if getattr(has_policy, part) != wanted:
            lines.append(f"{part}: {getattr(has_policy, part)} there, {wanted} wanted")
    hints = [f"change it with `vgpuctl set-quota {name}`"] if lines else []
    missing = [pool for pool in pools if name not in session.pool(pool).tenants]
    lines += [f"pool {pool}: not granted" for pool in missing]
    hints += [f"grant it with `vgpuctl grant-pool {pool} {name}`" for pool in missing]
    if lines:
        raise TenantDiffers(f"tenant {name} is there and differs", context=lines, hint=", and ".join(hints))


def set_quota(services: Services, name: str, *, limits: Amounts, guaranteed: Amounts, dry_run: bool = False) -> bool:
    """Set some quotas of a tenant, or with None take them away; the others stay. Returns whether anything changed.

    A limit below what is used already refuses what comes, and takes nothing away. Raises NotFound, UsageError.
    """
    with services.store.reading() as session:
        session.tenant(name)
        there = session.quotas(name)
    wanted = _check(changed(there, limits, guaranteed))
    if dry_run:
        return wanted != there
    with services.store.transaction() as session:
        return _set(session, name, limits, guaranteed)


def set_policy(
    services: Services,
    name: str,
    *,
    reclaim: Reclaim | None = None,
    preempt: PreemptMode | None = None,
    grace_s: float | None = None,
    dry_run: bool = False,
) -> bool:
    """Change the preemption policy of a tenant; None leaves a part as it is. Returns whether anything changed.

    Raises NotFound.
    """
    with services.store.reading() if dry_run else services.store.transaction() as session:
        before = session.tenant(name).policy
        policy = TenantPolicy(
            before.reclaim if reclaim is None else reclaim,
            before.preempt if preempt is None else preempt,
            before.grace_s if grace_s is None else grace_s,
        )
        if policy == before:
            return False
        if not dry_run:
            session.set_policy(name, policy)
            session.add_event("policy-set", name, describe_policy(policy))
        return True


def describe_policy(policy: TenantPolicy) -> str:
    """A policy in a few words: `reclaim requeue, preempt ask, grace period 30s`."""
    return f"reclaim {policy.reclaim}, preempt {policy.preempt}, grace period {format_duration(policy.grace_s)}"


def list_tenants(services: Services) -> Sequence[ListedTenant]:
    """Every tenant in name order."""
    with services.store.reading() as session:
        vms = session.vms()
        pools = session.pools()
        return [
            ListedTenant(
                one.name,
                sum(vm.request.tenant == one.name for vm in vms),
                tuple(pool.name for pool in pools if one.name in pool.tenants),
                _uses(session, one.name),
                next((contact.address for contact in session.vpc_objects(one.name, Contact)), None),
                one.policy,
            )
            for one in session.tenants()
        ]


def _uses(session: Session, tenant: str) -> tuple[QuotaUse, ...]:
    quotas = session.quotas(tenant)
    used = session.used(tenant) if quotas else {}
    return tuple(
        QuotaUse(quota.resource, have, quota.limit, quota.guaranteed, quota.borrowed(have))
        for quota in quotas
        for have in [used.get(quota.resource, 0)]
    )


def _set(session: Session, tenant: str, limits: Amounts, guaranteed: Amounts) -> bool:
    there = session.quotas(tenant)
    wanted = _check(changed(there, limits, guaranteed))
    if wanted == there:
        return False
    session.set_quotas(tenant, wanted)
    session.add_event("quota-set", tenant, ", ".join(map(describe, wanted)))
    return True


def _check(quotas: Sequence[Quota]) -> list[Quota]:
    for quota in quotas:
        if quota.limit is not None and quota.guaranteed is not None and quota.guaranteed > quota.limit:
            raise UsageError(
                f"{quota.resource}: {format_amount(quota.resource, quota.guaranteed)} guaranteed is more than the "
                f"limit of {format_amount(quota.resource, quota.limit)}",
                hint="raise the limit too, or guarantee less",
            )
    return list(quotas)


def describe(quota: Quota) -> str:
    """A quota in a few words: `framebuffer up to 96 GiB, 48 GiB guaranteed`."""
    parts = [] if quota.limit is None else [f"up to {format_amount(quota.resource, quota.limit)}"]
    if quota.guaranteed is not None:
        parts.append(f"{format_amount(quota.resource, quota.guaranteed)} guaranteed")
    return f"{quota.resource} {', '.join(parts)}"
