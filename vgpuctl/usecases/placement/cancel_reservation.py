# SPDX-License-Identifier: Apache-2.0
"""cancel-reservation: its shares are free again."""

from vgpuctl.model.reservation import Reservation
from vgpuctl.usecases.placement.reservations import find_reservation
from vgpuctl.usecases.support.services import Services


def cancel_reservation(services: Services, tenant: str, name: str) -> Reservation:
    """Delete a reservation; a VM that uses it runs on. Raises NotFound."""
    with services.store.transaction() as session:
        there = find_reservation(session, tenant, name)
        session.cancel_reservation(there)
        session.add_event("reservation-cancelled", f"{tenant}.{name}")
    return there
