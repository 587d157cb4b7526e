# SPDX-License-Identifier: Apache-2.0
"""create-tenant: add a tenant with quotas, pools and a preemption policy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vgpuctl.errors import TenantDiffers
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.preemption import USUAL_POLICY
from vgpuctl.model.vm import check_name
from vgpuctl.quota.limits import Quota
from vgpuctl.quota.resources import format_amount
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.tenant.host_pools import record_grant
from vgpuctl.usecases.tenant.set_quota import Amounts, note_policy, policy_values, record_quotas


def create_tenant(
    services: Services,
    name: str,
    *,
    limits: Amounts | None = None,
    guaranteed: Amounts | None = None,
    host_pools: Sequence[str] = (),
    policy: Mapping[str, object] | None = None,
) -> bool:
    """Add a tenant with quotas, pools and parts of a preemption policy. Returns False when it is there already, so.

    A tenant that is there is never changed. Raises TenantDiffers when it has not got what is named, UsageError for a
    name that cannot be used, NotFound for a pool that is not there; then nothing is added.
    """
    check_name(name, what="tenant")
    with services.store.transaction() as session:
        if not session.add_tenant(name):
            _refuse_other(session, name, limits or {}, guaranteed or {}, host_pools, policy or {})
            return False
        session.add_event(EventKind.TENANT_CREATED, name, tenant=name, after=policy_values(USUAL_POLICY))
        record_quotas(session, name, limits or {}, guaranteed or {})
        for pool in host_pools:
            record_grant(session, pool, name, revoke=False)
        if policy:
            wanted = replace(USUAL_POLICY, **policy)  # type: ignore[arg-type]
            session.set_policy(name, wanted)
            note_policy(session, name, USUAL_POLICY, wanted)
        return True


def _refuse_other(
    session: Session,
    name: str,
    limits: Amounts,
    guaranteed: Amounts,
    host_pools: Sequence[str],
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
    missing = [pool for pool in host_pools if name not in session.host_pool(pool).tenants]
    lines += [f"host pool {pool}: not granted" for pool in missing]
    hints += [f"grant it with `vgpuctl grant-host-pool {pool} {name}`" for pool in missing]
    if lines:
        raise TenantDiffers(f"tenant {name} is there and differs", context=lines, hint=", and ".join(hints))
