# SPDX-License-Identifier: Apache-2.0
"""Quota that runs reclaim for VMs that do not hold it yet, so that two of them do not count on the same guarantee."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from vgpuctl.store.liveness import is_running
from vgpuctl.store.operations import OperationRows

if TYPE_CHECKING:
    from vgpuctl.quota.charge import Amounts

KIND = "reclaim"


class ReclaimRows(OperationRows):
    """Claim quota, and add up what others claim. A claim ends with the VM's first lease, or with its operation."""

    def claim_quota(self, subject: str, tenant: str, amounts: "Mapping[str, Amounts]") -> None:
        """Claim quota for VMs that this process is about to place, instead of what it claimed for `subject` before.

        amounts: by name of the VM, in the units of quotas. Check `claimed_quota` in the same transaction.
        """
        self.end_own_operations(subject)
        operation_id = self.begin_operation(KIND, subject, ", ".join(f"{tenant}/{name}" for name in amounts))
        for name, takes in amounts.items():
            for resource, amount in takes.items():
                row: dict[str, Any] = {"tenant": tenant, "vm_name": name, "resource": resource, "amount": amount}
                self._insert("reclaims", operation_id=operation_id, **row)

    def claimed_quota(self, tenant: str, *, without: Collection[str]) -> dict[str, int]:
        """Add up what runs that may be alive claim for VMs of a tenant, without the VMs of these names."""
        rows = [row for row in self._find("reclaims", tenant=tenant) if row.vm_name not in without]
        if not rows:
            return {}
        from vgpuctl.quota import charge

        living = {one.id for one in self.open_operations() if is_running(one) is not False}
        return charge.add(*({row.resource: row.amount} for row in rows if row.operation_id in living))

    def end_claims_of(self, tenant: str, vm_name: str) -> None:
        """End what is claimed for one VM: it has its leases."""
        self._delete("reclaims", tenant=tenant, vm_name=vm_name)
