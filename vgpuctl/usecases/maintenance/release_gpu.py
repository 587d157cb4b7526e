# SPDX-License-Identifier: Apache-2.0
"""release-gpu: a quarantined GPU or VF takes VMs again."""

from vgpuctl.errors import NotFound
from vgpuctl.model.restriction import Restriction, RestrictionKind, restrictions_on
from vgpuctl.usecases.maintenance.restricted import find_gpu, lift
from vgpuctl.usecases.support.services import Services


def release_gpu(
    services: Services, host: str, address: str, *, reason: str, dry_run: bool = False
) -> list[Restriction]:
    """Lift the quarantines of a GPU or VF. Returns what was lifted, none when it is in no quarantine.

    reason: why it is trusted again, for the event. A quarantine of the inventory stays. Raises NotFound for an unknown
    GPU that no quarantine names.
    """
    with services.store.reading() as session:
        every = [one for one in session.restrictions() if one.kind is RestrictionKind.QUARANTINE]
    found = [one for one in every if (one.host, one.device) == (host, address)]
    try:
        gpu = find_gpu(services, host, address)
    except NotFound:
        if not found:  # a card that was taken out can still be released by the address that it had
            raise
    else:
        whole = gpu.address == address
        found = restrictions_on(every, host, address, gpu.uuid if whole else None)
    if dry_run:
        return found
    with services.store.transaction() as session:
        for one in found:
            lift(session, one, reason)
    return found
