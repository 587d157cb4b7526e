# SPDX-License-Identifier: Apache-2.0
"""quarantine-gpu: a suspect GPU or VF is given to nobody."""

from vgpuctl.model.restriction import RestrictionKind
from vgpuctl.usecases.cluster.leave_cluster import SICK, leave_cluster
from vgpuctl.usecases.maintenance.restricted import find_gpu, set_restriction, stored_reason
from vgpuctl.usecases.running.services import Services


def quarantine_gpu(
    services: Services, host: str, address: str, *, reason: str, is_evacuated: bool = False
) -> tuple[bool, str]:
    """Put a GPU or VF in quarantine, by its PCI address. VMs that run on it go on, but do not start there again.

    Nodes of clusters on it are cordoned. is_evacuated: its VMs leave it next.

    The quarantine of a GPU follows its UUID to another slot or host. Returns whether that is new, and the reason that
    is stored: of one that was there, its own. Raises NotFound for a GPU that the host does not have.
    """
    gpu = find_gpu(services, host, address)
    with services.store.transaction() as session:
        changed = set_restriction(session, host, address, RestrictionKind.QUARANTINE, reason, gpu)
        stored = stored_reason(session, host, address, RestrictionKind.QUARANTINE, gpu)
        users = {one.vm_uuid for one in session.leases(host=host) if address in (one.share.gpu, one.share.function)}
        vms = [vm for vm in session.vms(host=host) if vm.uuid in users]
    for vm in vms:
        if not is_evacuated:
            services.say(
                f"{vm.printed_name} is on {host} {address} and goes on; `vgpuctl move-vm {vm.printed_name}` moves it"
            )
        leave_cluster(services, vm, SICK, 0, detail=f"its GPU {address}: in quarantine: {reason}")
    return changed, stored
