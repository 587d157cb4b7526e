# SPDX-License-Identifier: Apache-2.0
"""Ceilings of tenants: held where a VM's request is written, so that no command gets around one."""

from vgpuctl.model.over_promise import OverPromise
from vgpuctl.model.vm import VmRequest
from vgpuctl.store.rows import Rows

_OF_ONE = (
    "SELECT resource, most FROM quotas WHERE tenant = :tenant"
    " AND (resource LIKE 'each:%' OR resource LIKE 'default:%') AND most IS NOT NULL"
)


class CeilingRows(Rows):
    """Give VMs the defaults of their tenant, and refuse more than its ceilings."""

    def with_usual(self, request: VmRequest, there: VmRequest | None = None) -> VmRequest:
        """The request with its tenant's defaults where it asks for nothing. there: the VM, whose own values count."""
        rows = self._read(_OF_ONE, tenant=request.tenant)
        if not rows:
            return request
        from vgpuctl.quota.ceilings import ceilings_of, with_usual
        from vgpuctl.quota.limits import Quota

        return with_usual(request, ceilings_of(Quota(row.resource, row.most) for row in rows), there)

    def require_below(self, request: VmRequest, before: VmRequest | None = None, *, is_kept: bool = False) -> None:
        """Raise QuotaExceeded for a VM above a ceiling of its tenant.

        before: the VM as it is, which may stay so. is_kept: it comes back as it was, so nobody can ask for less.
        """
        rows = self._read(_OF_ONE, tenant=request.tenant)
        if not rows:
            return
        from vgpuctl.quota.ceilings import above, ceilings_of, refusal
        from vgpuctl.quota.limits import Quota

        found = above(request, ceilings_of(Quota(row.resource, row.most) for row in rows), before)
        if found:
            raise refusal(request, found, is_kept=is_kept)

    def over_promise(self) -> dict[str, OverPromise]:
        """The policy of each tenant that has one, for VMs that take more of a GPU than they were promised."""
        rows = self._read("SELECT tenant, most FROM quotas WHERE resource = 'over-promise' AND most IS NOT NULL")
        policies = list(OverPromise)
        return {row.tenant: policies[row.most] for row in rows if 0 <= row.most < len(policies)}
