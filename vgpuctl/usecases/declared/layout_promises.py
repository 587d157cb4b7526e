# SPDX-License-Identifier: Apache-2.0
"""Promises to a host's VMs, compared with its declared layout before any step: time slices of VFs.

Their steps disturb no VM, so nothing else would look at it (VMs that are stopped: usecases/layout/returning.py).
"""

from collections.abc import Sequence

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.layout import HostLayout
from vgpuctl.model.lease import Lease
from vgpuctl.planner.layout.function_params import refuse_for_vm
from vgpuctl.planner.layout.result import Stranded
from vgpuctl.sharing.declared import declared_of
from vgpuctl.sharing.kinds import takes_function
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.store.store import Session

BREAKS_PROMISE = "vm-promise"


def broken_promises(
    session: Session, layout: HostLayout, facts: HostFacts, leases: Sequence[Lease]
) -> dict[str, Stranded]:
    """The GPUs whose layout breaks a promise to a VM that stays there, by address, with all such VMs.

    leases: of the host.
    """
    found: dict[str, list[str]] = {}
    for lease in leases:
        gpu = gpu_at(facts, lease.share.gpu) if takes_function(lease.share) else None
        vm = None if gpu is None else session.vm_of(lease.vm_uuid)
        if gpu is None or vm is None:
            continue
        reason = refuse_for_vm(vm.request, lease, gpu, declared_of(gpu, facts, layout.gpus))
        if reason is not None:
            found.setdefault(gpu.address, []).append(f"{vm.printed_name}: {reason}")
    remedy = "declare what the VMs were promised, or resize, move or delete them, then run again"
    return {
        address: Stranded(BREAKS_PROMISE, f"the layout breaks what VMs were promised: {'; '.join(reasons)}", remedy)
        for address, reasons in found.items()
    }
