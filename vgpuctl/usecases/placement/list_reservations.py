# SPDX-License-Identifier: Apache-2.0
"""list-reservations: the calendar."""

from collections.abc import Sequence

from vgpuctl.model.reservation import Reservation
from vgpuctl.usecases.running.services import Services


def list_reservations(services: Services, *, tenant: str | None, past: bool) -> Sequence[Reservation]:
    """The reservations that are not over, or all; by their next begin."""
    now = services.store.now()
    with services.store.reading() as session:
        found = [one for one in session.reservations() if tenant in (None, one.tenant)]
    return sorted(
        (one for one in found if past or not one.is_over(now)),
        key=lambda one: (one.window_after(now) or (one.begin, one.end), one.tenant, one.name),
    )
