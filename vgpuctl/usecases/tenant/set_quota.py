# SPDX-License-Identifier: Apache-2.0
"""set-quota: quotas and preemption policy of a tenant."""

from collections.abc import Iterator, Mapping, Sequence

from vgpuctl.errors import UsageError
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.preemption import PreemptMode, Reclaim, TenantPolicy
from vgpuctl.model.times import format_duration
from vgpuctl.model.vm import printed_name
from vgpuctl.quota.ceilings import Ceiling, above, ceilings_of, describe_above, refuse_contradiction, with_usual
from vgpuctl.quota.limits import Quota, changed
from vgpuctl.quota.resources import EACH, RATES, WITHOUT_LIMIT, Limited, adds_up, format_amount
from vgpuctl.quota.vm_limits import describe_unlimited
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.known_profiles import refuse_unknown_resources
from vgpuctl.usecases.running.services import Services

Amounts = Mapping[str, int | None]


def set_quota(services: Services, name: str, *, limits: Amounts, guaranteed: Amounts) -> bool:
    """Set some quotas of a tenant, or with None remove them; the others stay. Returns whether anything changed.

    A limit below what is used already refuses what comes, releases nothing, and is said. Raises NotFound, and
    UsageError also for shares of a type that nobody knows.
    """
    with services.store.reading() as session:
        session.tenant(name)
        there = session.quotas(name)
        refuse_unknown_quotas(session, name, limits, guaranteed)
        used = session.used(name)
    wanted = _check(changed(there, limits, guaranteed))
    for quota in wanted:
        if quota.resource in limits and quota.limit is not None and used.get(quota.resource, 0) > quota.limit:
            services.say(f"warning: {_below_use(name, quota, used[quota.resource])}")
    with services.store.transaction() as session:
        is_changed = record_quotas(session, name, limits, guaranteed)
        ceilings = [one for one in ceilings_of(wanted) if limits.get(EACH + one.name) is not None]
        for line in _list_above(session, name, ceilings) if ceilings else ():
            services.say(f"warning: {line}")
        for line in _list_unlimited(
            session, name, [one for rate, one in RATES.items() if limits.get(rate) is not None]
        ):
            services.say(f"warning: {line}")
        return is_changed


def _list_above(session: Session, tenant: str, ceilings: Sequence[Ceiling]) -> Iterator[str]:
    """A line for each VM above these ceilings, and for each entry of the queue and node pool that would make one."""
    for vm in session.vms(tenant):
        if found := above(vm.request, ceilings):
            yield describe_above(vm.printed_name, vm.request, found, is_there=True)
    for entry in session.queue():
        for one in entry.requests if not entry.kind.starts_again() else ():
            wanted = with_usual(one, ceilings)
            if one.tenant == tenant and (found := above(wanted, ceilings)):
                label = f"{printed_name(tenant, one.name)}, which waits in the queue,"
                yield describe_above(label, wanted, found, is_there=False)
    for pool in session.node_pools(tenant):
        wanted = with_usual(pool.request_of(pool.node_name(1)), ceilings)
        if found := above(wanted, ceilings):
            yield describe_above(f"each new node of pool {pool.printed_name}", wanted, found, is_there=False)


def _list_unlimited(session: Session, tenant: str, names: Sequence[Limited]) -> Iterator[str]:
    """A line for each VM of which a disk or an interface has no limit, where the sum of their limits is a quota."""
    for vm in session.vms(tenant) if names else ():
        for name in names:
            found = describe_unlimited(vm.request, name)
            if found is not None:
                yield f"{found}; each counts {WITHOUT_LIMIT[name]} until then"


def refuse_unknown_quotas(session: Session, tenant: str, limits: Amounts, guaranteed: Amounts) -> None:
    """Raise UsageError for a new quota on shares of a type that nobody knows; `none` removes any."""
    there = {one.resource for one in session.quotas(tenant)}
    named = [name for amounts in (limits, guaranteed) for name, amount in amounts.items() if amount is not None]
    refuse_unknown_resources(session, [name for name in named if name not in there])


def _below_use(tenant: str, quota: Quota, used: int) -> str:
    limit = format_amount(quota.resource, quota.limit or 0)
    return (
        f"tenant {tenant} uses {format_amount(quota.resource, used)} of {quota.resource}, more than {limit}: "
        "what it has stays, and nothing more is given"
    )


def set_policy(
    services: Services,
    name: str,
    *,
    reclaim: Reclaim | None = None,
    preempt: PreemptMode | None = None,
    grace_s: float | None = None,
) -> bool:
    """Change the preemption policy of a tenant; None leaves a part as it is. Returns whether anything changed.

    Raises NotFound.
    """
    with services.store.transaction() as session:
        before = session.tenant(name).policy
        policy = TenantPolicy(
            before.reclaim if reclaim is None else reclaim,
            before.preempt if preempt is None else preempt,
            before.grace_s if grace_s is None else grace_s,
        )
        if policy == before:
            return False
        session.set_policy(name, policy)
        note_policy(session, name, before, policy)
        return True


def note_policy(session: Session, tenant: str, before: TenantPolicy, after: TenantPolicy) -> None:
    """Add the event of a policy that was set."""
    session.add_event(
        EventKind.POLICY_SET, tenant, tenant=tenant, before=policy_values(before), after=policy_values(after)
    )


def policy_values(policy: TenantPolicy) -> Values:
    """The values of a policy for events."""
    return {"reclaim": str(policy.reclaim), "preempt": str(policy.preempt), "grace_s": policy.grace_s}


def describe_policy(policy: TenantPolicy) -> str:
    """A policy in a few words: `reclaim requeue, preempt ask, grace period 30s`."""
    return f"reclaim {policy.reclaim}, preempt {policy.preempt}, grace period {format_duration(policy.grace_s)}"


def record_quotas(session: Session, tenant: str, limits: Amounts, guaranteed: Amounts) -> bool:
    """Store a tenant's changed quotas with an event. Return whether any changed. Raises UsageError."""
    there = session.quotas(tenant)
    refuse_unknown_quotas(session, tenant, limits, guaranteed)
    wanted = _check(changed(there, limits, guaranteed))
    if wanted == there:
        return False
    session.set_quotas(tenant, wanted)
    before, after = ({one.resource: _amounts(one) for one in quotas} for quotas in (there, wanted))
    changes = [name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name)]
    session.add_event(
        EventKind.QUOTA_SET,
        tenant,
        tenant=tenant,
        before={name: before.get(name) for name in changes},
        after={name: after.get(name) for name in changes},
    )
    return True


def _check(quotas: Sequence[Quota]) -> list[Quota]:
    refuse_contradiction(quotas)
    for quota in quotas:
        if quota.limit is not None and quota.guaranteed is not None and quota.guaranteed > quota.limit:
            raise UsageError(
                f"{quota.resource}: {format_amount(quota.resource, quota.guaranteed)} guaranteed is more than the "
                f"limit of {format_amount(quota.resource, quota.limit)}",
                hint="raise the limit too, or guarantee less",
            )
    return list(quotas)


def _amounts(quota: Quota) -> str:
    return describe_quota(quota).removeprefix(f"{quota.resource} ")


def describe_quota(quota: Quota) -> str:
    """A quota in a few words: `framebuffer up to 96 GiB, 48 GiB guaranteed`."""
    up_to = "up to " if adds_up(quota.resource) else ""
    parts = [] if quota.limit is None else [f"{up_to}{format_amount(quota.resource, quota.limit)}"]
    if quota.guaranteed is not None:
        parts.append(f"{format_amount(quota.resource, quota.guaranteed)} guaranteed")
    return f"{quota.resource} {', '.join(parts)}"
