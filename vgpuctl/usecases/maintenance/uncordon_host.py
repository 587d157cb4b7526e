# SPDX-License-Identifier: Apache-2.0
"""uncordon-host: a host, or one of its GPUs, takes VMs again."""

from vgpuctl.model.restriction import WHOLE_HOST, Restriction, RestrictionKind, restrictions_on
from vgpuctl.usecases.maintenance.restricted import find_gpu, lift
from vgpuctl.usecases.support.services import Services


def uncordon_host(
    services: Services, host: str, *, gpu: str | None, reason: str, dry_run: bool = False
) -> list[Restriction]:
    """Lift the cordon of a host, or of one GPU by its PCI address. Returns what was lifted, none when there is none.

    A quarantine stays: `release-gpu` lifts it. Raises InventoryError for an unknown host, NotFound for an unknown GPU.
    """
    card = None if gpu is None else find_gpu(services, host, gpu)
    services.inventory.require(host)
    with services.store.reading() if dry_run else services.store.transaction() as session:
        every = [one for one in session.restrictions() if one.kind is RestrictionKind.CORDON]
        if card is not None:
            found = restrictions_on(every, host, card.address, card.uuid)
        else:
            found = [one for one in every if (one.host, one.device) == (host, WHOLE_HOST)]
        for one in () if dry_run else found:
            lift(session, one, reason)
    return found
