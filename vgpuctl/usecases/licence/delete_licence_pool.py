# SPDX-License-Identifier: Apache-2.0
"""delete-licence-pool: no longer count the seats of a licence server."""

from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.licence import LicencePool
from vgpuctl.usecases.licence.create_licence_pool import values_of_pool
from vgpuctl.usecases.support.licences import settle_seats, shortages
from vgpuctl.usecases.support.services import Services


def delete_licence_pool(services: Services, name: str) -> LicencePool:
    """Delete a pool with its token and its seats. Its VMs run on; another pool of its edition counts them.

    Raises NotFound.
    """
    with services.store.transaction() as session:
        pool = session.licence_pool(name)
        session.delete_licence_pool(name)
        session.add_event(EventKind.LICENCE_POOL_DELETED, name, before=values_of_pool(pool))
        settle_seats(session)
        lacking = shortages(session)
    for line in lacking:
        services.say(f"warning: {line}")
    return pool
