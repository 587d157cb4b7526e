# SPDX-License-Identifier: Apache-2.0
"""cordon-host: no new VM on a host, or on one of its GPUs."""

from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.usecases.maintenance.restricted import find_gpu, set_restriction, stored_reason
from vgpuctl.usecases.running.services import Services


def cordon_host(services: Services, host: str, *, gpu: str | None, reason: str) -> tuple[bool, str]:
    """Take a host, or one GPU of it by its PCI address, out of placement. VMs there go on, and may start again.

    The host is read only where a GPU is named and the store has no facts of the host. Returns whether that is new, and
    the reason that is stored. Raises InventoryError for a host that the inventory does not have, NotFound for such a
    GPU.
    """
    card = None if gpu is None else find_gpu(services, host, gpu)
    services.inventory.require(host)
    device = WHOLE_HOST if card is None else card.address
    with services.store.transaction() as session:
        changed = set_restriction(session, host, device, RestrictionKind.CORDON, reason, card)
        return changed, stored_reason(session, host, device, RestrictionKind.CORDON, card)
