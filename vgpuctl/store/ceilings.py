# SPDX-License-Identifier: Apache-2.0
"""Ceilings of tenants, and sums of rates: held where a VM's request is written, so that no command gets around one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vgpuctl.model.over_promise import OverPromise
from vgpuctl.model.vm import VmRequest
from vgpuctl.store import codec
from vgpuctl.store.rows import Rows

if TYPE_CHECKING:  # few commands need quotas
    from vgpuctl.quota.limits import Quota

_OF_ONE = (
    "SELECT resource, most FROM quotas WHERE tenant = :tenant"
    " AND (resource LIKE 'each:%' OR resource LIKE 'default:%' OR resource IN ('iops', 'bandwidth'))"
    " AND most IS NOT NULL"
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

    def require_below(
        self, request: VmRequest, before: VmRequest | None = None, *, is_kept: bool = False, adds_up: bool = True
    ) -> None:
        """Raise QuotaExceeded for a VM above a ceiling of its tenant, or with more IOPS or bandwidth than it has left.

        before: the VM as it is, which may stay so. is_kept: it comes back as it was, so nobody can ask for less.
        adds_up: False for ceilings alone.
        """
        rows = self._read(_OF_ONE, tenant=request.tenant)
        if not rows:
            return
        from vgpuctl.quota.ceilings import above, ceilings_of, refusal
        from vgpuctl.quota.limits import Quota

        quotas = [Quota(row.resource, row.most) for row in rows]
        found = above(request, ceilings_of(quotas), before)
        if found:
            raise refusal(request, found, is_kept=is_kept)
        if adds_up:
            self._require_rates(quotas, request, before)

    def _require_rates(self, quotas: "Sequence[Quota]", request: VmRequest, before: VmRequest | None) -> None:
        """Refuse what grows above a sum of rates. An adopted VM is counted and not refused, as with other quotas."""
        from vgpuctl.quota.charge import add, rates_of
        from vgpuctl.quota.limits import exceeded, excesses

        has = {} if before is None else rates_of(before)
        grown = {name: amount - has.get(name, 0) for name, amount in rates_of(request).items()}
        grown = {name: amount for name, amount in grown.items() if amount > 0}
        limits = [one for one in quotas if one.resource in grown]
        if not limits or request.domain is not None:
            return
        there = (
            codec.decode_request(row.request, row.request_version, what=f"VM {row.name} of tenant {row.tenant}")
            for row in self._find("vms", tenant=request.tenant)
        )
        if found := excesses(limits, add(*map(rates_of, there)), grown):
            raise exceeded(request, found)

    def over_promise(self) -> dict[str, OverPromise]:
        """The policy of each tenant that has one, for VMs that take more of a GPU than they were promised."""
        rows = self._read("SELECT tenant, most FROM quotas WHERE resource = 'over-promise' AND most IS NOT NULL")
        policies = list(OverPromise)
        return {row.tenant: policies[row.most] for row in rows if 0 <= row.most < len(policies)}
