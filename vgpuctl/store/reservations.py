# SPDX-License-Identifier: Apache-2.0
"""Reservations in the store. Each change counts in its host's generation, so that no placement overlooks it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vgpuctl.store import codec
from vgpuctl.store.database import Row
from vgpuctl.store.hosts import HostRows
from vgpuctl.store.tenants import TenantRows

if TYPE_CHECKING:
    from vgpuctl.model.reservation import Reservation


class ReservationRows(HostRows, TenantRows):
    """Add, find, use and cancel reservations."""

    def reservations(self) -> "list[Reservation]":
        """Every reservation, those that are over too; by tenant and name."""
        return sorted(map(_reservation, self._find("reservations")), key=lambda one: (one.tenant, one.name))

    def reservations_on(self, host: str) -> "list[Reservation]":
        """Those on a host that have a window left."""
        now = self.now()
        return [one for one in self.reservations() if one.host == host and not one.is_over(now)]

    def reservation(self, tenant: str, name: str) -> "Reservation | None":
        """One reservation, None when there is none."""
        for one in self.reservations():
            if (one.tenant, one.name) == (tenant, name):
                return one
        return None

    def add_reservation(self, reservation: "Reservation", seen_generation: int) -> None:
        """Add one, if its host's leases are as they were seen. Raises NotFound (tenant), ConcurrentChange."""
        self.tenant(reservation.tenant)
        self.bump_generation(reservation.host, seen_generation)
        self._insert(
            "reservations",
            **_key(reservation),
            host=reservation.host,
            content=codec.encode(replace(reservation, vm_uuid=None)),
            content_version=codec.RESERVATION_VERSION,
            vm_uuid=None,
            created_at=self._clock(),
            conflict=f"tenant {reservation.tenant} has a reservation {reservation.name} already",
        )

    def use_reservation(self, reservation: "Reservation", vm_uuid: str | None) -> None:
        """Note which VM uses it; None when none does any more."""
        self._update("reservations", _key(reservation), vm_uuid=vm_uuid)

    def cancel_reservation(self, reservation: "Reservation") -> bool:
        """Delete one. Returns False when it was gone already."""
        self._count_change(reservation.host)
        return self._delete("reservations", **_key(reservation)) == 1


def _key(reservation: "Reservation") -> dict[str, Any]:
    return {"tenant": reservation.tenant, "name": reservation.name}


def _reservation(row: Row) -> "Reservation":
    what = f"reservation {row.name} of tenant {row.tenant}"
    return replace(codec.decode_reservation(row.content, row.content_version, what=what), vm_uuid=row.vm_uuid)
