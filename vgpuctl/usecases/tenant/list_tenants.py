# SPDX-License-Identifier: Apache-2.0
"""list-tenants: tenants, their quotas and what they use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgpuctl.model.over_promise import OverPromise
from vgpuctl.model.preemption import USUAL_POLICY, TenantPolicy
from vgpuctl.model.vpc import Contact
from vgpuctl.quota.resources import OVER_PROMISE, adds_up, format_amount
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services

if TYPE_CHECKING:  # it would load the catalogue
    from vgpuctl.quota.limits import Quota


@dataclass(frozen=True)
class QuotaUse:
    """One quota and what is used of it, in the quota's unit (vgpuctl.quota.resources).

    limit: of `over-promise` its policy. used, borrowed: null where nothing adds up, as of a ceiling of each disk.
    """

    resource: str
    used: int | None
    limit: int | OverPromise | None
    guaranteed: int | None
    borrowed: int | None


@dataclass(frozen=True)
class ListedTenant:
    """One tenant: how many VMs it has, the pools granted to it, its quotas, and whom to ask about it."""

    tenant: str
    vms: int
    host_pools: tuple[str, ...]
    quotas: tuple[QuotaUse, ...]
    contact: str | None = None
    policy: TenantPolicy = USUAL_POLICY


def list_tenants(services: Services, names: Sequence[str] = ()) -> Sequence[ListedTenant]:
    """Every tenant in name order, or these. Raises NotFound."""
    with services.store.reading() as session:
        vms = session.vms()
        pools = session.host_pools()
        return [
            ListedTenant(
                one.name,
                sum(vm.request.tenant == one.name for vm in vms),
                tuple(pool.name for pool in pools if one.name in pool.tenants),
                _uses(session, one.name),
                next((contact.address for contact in session.vpc_objects(one.name, Contact)), None),
                one.policy,
            )
            for one in (map(session.tenant, names) if names else session.tenants())
        ]


def _uses(session: Session, tenant: str) -> tuple[QuotaUse, ...]:
    quotas = session.quotas(tenant)
    used = session.used(tenant) if quotas else {}
    return tuple(_use(quota, used.get(quota.resource, 0)) for quota in quotas)


def _use(quota: "Quota", used: int) -> QuotaUse:
    if adds_up(quota.resource):
        return QuotaUse(quota.resource, used, quota.limit, quota.guaranteed, quota.borrowed(used))
    limit: int | OverPromise | None = quota.limit
    if quota.resource == OVER_PROMISE and quota.limit is not None:
        limit = OverPromise(format_amount(quota.resource, quota.limit))
    return QuotaUse(quota.resource, None, limit, quota.guaranteed, None)
