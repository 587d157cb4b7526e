# SPDX-License-Identifier: Apache-2.0
"""VMs on borrowed quota, and the tenants that may reclaim it."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.quota.charge import Amounts, add
from vgpuctl.quota.limits import Quota
from vgpuctl.quota.resources import SHARES, Resource

_OF_GPUS = (Resource.CARDS, Resource.FRAMEBUFFER, Resource.MIG_COMPUTE, Resource.COMPUTE)


@dataclass(frozen=True)
class ChargedVm:
    """One VM of a tenant with all it takes."""

    vm_uuid: str
    created_at: float
    takes: Amounts


def borrowed_vms(vms: Sequence[ChargedVm], quotas: Sequence[Quota]) -> frozenset[str]:
    """The VMs of one tenant that its guarantees do not cover: the oldest are covered first.

    Only what is of GPUs counts, since only that is released.
    """
    guarantees = {one.resource: one.guaranteed for one in quotas if one.guaranteed is not None and _is_of_gpus(one)}
    covered: dict[str, int] = {}
    borrowed = set()
    for vm in sorted(vms, key=lambda one: (one.created_at, one.vm_uuid)):
        total = add(covered, vm.takes)
        if any(total.get(resource, 0) > most and vm.takes.get(resource) for resource, most in guarantees.items()):
            borrowed.add(vm.vm_uuid)
        else:
            covered = total
    return frozenset(borrowed)


def may_reclaim(quotas: Sequence[Quota], used: Amounts, asked: Amounts) -> bool:
    """True if a request stays within what its tenant is guaranteed of GPUs, and something of it is guaranteed.

    A limit guarantees nothing: it says what the tenant may not exceed.
    """
    promises = {one.resource: one.guaranteed for one in quotas if _is_of_gpus(one)}
    wanted = {resource: most for resource, most in promises.items() if most is not None and asked.get(resource, 0) > 0}
    return bool(wanted) and all(used.get(name, 0) + asked[name] <= most for name, most in wanted.items())


def _is_of_gpus(quota: Quota) -> bool:
    return quota.resource in _OF_GPUS or quota.resource.startswith(SHARES)
