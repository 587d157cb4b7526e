# SPDX-License-Identifier: Apache-2.0
"""cancel-reservation: its shares are free again."""

from vgpuctl.model.reservation import Reservation
from vgpuctl.usecases.placement.reservations import find_reservation, record_cancellation
from vgpuctl.usecases.support.services import Services


def cancel_reservation(services: Services, tenant: str, name: str) -> Reservation:
    """Delete a reservation; a VM that uses it runs on. Raises NotFound."""
    with services.store.transaction() as session:
        there = find_reservation(session, tenant, name)
        record_cancellation(session, there)
    return there
