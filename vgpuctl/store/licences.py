# SPDX-License-Identifier: Apache-2.0
"""Pools of licences and their seats. A row of a seat stays until its pool, or its VM and its time, are gone.

The writers of a store take turns, so seats that were counted in a writing transaction stay free until its end.
"""

from collections import Counter
from dataclasses import replace

from vgpuctl.errors import NotFound, StoreUnusable
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.licence import Edition, LicencePool, LicenceSeat
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.times import format_time_to_second
from vgpuctl.model.vm import printed_name
from vgpuctl.store.database import Row, given, matching
from vgpuctl.store.events import EventRows

_TOKEN = "token"
_NO_VM = "vm_uuid NOT IN (SELECT uuid FROM vms)"
_TOKENS_NAME = "the token of a licence pool"


class LicenceRows(EventRows):
    """Add, change and delete pools of licences; take seats and return them."""

    def licence_pools(self) -> list[LicencePool]:
        """Every pool, by name."""
        return sorted(map(_pool, self._find("licence_pools")), key=lambda one: one.name)

    def licence_pool(self, name: str) -> LicencePool:
        """One pool. Raises NotFound with the names there are."""
        pools = self.licence_pools()
        for pool in pools:
            if pool.name == name:
                return pool
        known = ", ".join(pool.name for pool in pools)
        raise NotFound(
            f"there is no licence pool {name!r} in the store {self._store_name}",
            hint=f"there are {known}"
            if known
            else f"create it first with `vgpuctl create-licence-pool {name} --edition EDITION --seats NUMBER`",
        )

    def put_licence_pool(self, pool: LicencePool) -> None:
        """Add a pool, or change one; its token stays."""
        values = {"edition": pool.edition.value, "seats": pool.seats, "lease_s": pool.lease_s, "server": pool.server}
        self._put("licence_pools", {"name": pool.name}, new={"created_at": self._clock()}, **values)

    def set_licence_token(self, name: str, token: SecretText | None) -> None:
        """Seal the token of a pool, in base64; None forgets it. Raises StoreUnusable without a key."""
        sealed = None
        if token is not None:
            sealed = self._key_file.seal({name: {_TOKEN: token.reveal()}}, what=_TOKENS_NAME)
        self._update("licence_pools", {"name": name}, token=sealed)

    def licence_token(self, name: str) -> SecretText | None:
        """The token of a pool, in base64; None where it has none. Raises StoreUnusable without its key."""
        for row in self._find("licence_pools", name=name):
            if row.token is None:
                return None
            token = self._key_file.open(row.token, what=f"{_TOKENS_NAME} ({name})").get(name, {}).get(_TOKEN)
            if token is None:
                raise StoreUnusable(
                    f"the sealed token of licence pool {name} is of another pool",
                    hint=f"somebody changed the row; run `vgpuctl set-licence-pool {name} --token FILE`",
                )
            return SecretText.of(token)
        return None

    def delete_licence_pool(self, name: str) -> None:
        """Delete a pool with the seats that are taken of it."""
        for seat in self.licence_seats(pool=name):
            if seat.released_at is None:
                self._note_seat(EventKind.LICENCE_RETURNED, seat, after={"comes back": "never: its pool is deleted"})
        self._delete("licence_seats", pool=name)
        self._delete("licence_pools", name=name)

    def licence_seats(
        self, *, pool: str | None = None, vm_uuid: str | None = None, tenant: str | None = None
    ) -> list[LicenceSeat]:
        """Seats that are taken now, of a pool, a VM, a tenant, or all; by pool, tenant and VM."""
        # A VM may have another name than when it took the seat.
        equal = given(pool=pool, vm_uuid=vm_uuid, tenant=tenant)
        rows = self._read(
            "SELECT *, (SELECT name FROM vms WHERE uuid = vm_uuid) AS name FROM licence_seats "
            f"WHERE (released_at IS NULL OR released_at > :now) AND {matching(equal)}",
            now=self._clock(),
            **equal,
        )
        found = [replace(_seat(row), vm_name=row.name or row.vm_name) for row in rows]
        return sorted(found, key=lambda one: (one.pool, one.tenant, one.vm_name, one.vm_uuid, one.taken_at))

    def licences_used(self, tenant: str) -> Counter[Edition]:
        """How many seats of each edition a tenant's VMs take, those that come back later too."""
        return Counter(one.edition for one in self.licence_seats(tenant=tenant))

    def last_licence_pool(self, vm_uuid: str) -> str | None:
        """The pool of the seat that a VM took last; its guest may have that pool's token."""
        for row in self._find("licence_seats", order="taken_at DESC LIMIT 1", vm_uuid=vm_uuid):
            return str(row.pool)
        return None

    def take_licence_seat(self, seat: LicenceSeat) -> None:
        """Add a seat that a VM holds from now on; one of the same pool that is still to come back is taken again."""
        self._forget_past()
        self._delete("licence_seats", vm_uuid=seat.vm_uuid, pool=seat.pool)
        self._insert(
            "licence_seats",
            pool=seat.pool,
            tenant=seat.tenant,
            vm_uuid=seat.vm_uuid,
            vm_name=seat.vm_name,
            edition=seat.edition.value,
            taken_at=seat.taken_at,
            used_at=seat.used_at,
            released_at=seat.released_at,
            conflict=f"another run has just taken a licence for VM {seat.vm_name} of tenant {seat.tenant}",
        )
        self._note_seat(EventKind.LICENCE_TAKEN, seat, after={"pool": seat.pool, "edition": str(seat.edition)})

    def note_licence_used(self, vm_uuid: str) -> None:
        """Note that a guest starts now, which checks its licence out by itself."""
        for row in self._find("licence_seats", vm_uuid=vm_uuid, released_at=None, used_at=None):
            self._update("licence_seats", {"id": row.id}, used_at=self._clock())

    def note_licence_returned(self, vm_uuid: str) -> None:
        """Note that a guest has powered off, and so returned its licence to the server; the VM may keep its seat."""
        for row in self._find("licence_seats", vm_uuid=vm_uuid, released_at=None):
            if row.used_at is not None:
                self._update("licence_seats", {"id": row.id}, used_at=None)

    def release_licence_seat(self, vm_uuid: str) -> bool:
        """Return the seat that a VM holds. Returns False where it held none.

        The server counts the licence of a guest that was killed until the end of its lease. The seat of one that never
        started, or has returned its licence, comes back at once.
        """
        rows = self._find("licence_seats", vm_uuid=vm_uuid, released_at=None)
        for row in rows:
            seat, now = _seat(row), self._clock()
            at_once = seat.used_at is None
            until = now if at_once else now + self.licence_pool(seat.pool).lease_s
            self._update("licence_seats", {"id": row.id}, released_at=until)
            after: Values = {"comes back": "at once" if at_once else format_time_to_second(until)}
            self._note_seat(EventKind.LICENCE_RETURNED, seat, before={"pool": seat.pool}, after=after)
        return bool(rows)

    def stray_licence_seats(self) -> list[LicenceSeat]:
        """Held seats of VMs that the store no longer has."""
        return [_seat(row) for row in self._read(f"SELECT * FROM licence_seats WHERE released_at IS NULL AND {_NO_VM}")]

    def _forget_past(self) -> None:
        """Delete the rows of seats that came back and whose VMs are gone."""
        self._write(f"DELETE FROM licence_seats WHERE released_at <= :now AND {_NO_VM}", now=self._clock())

    def describe_seat(self, seat: LicenceSeat) -> str:
        """Who has a seat, and when it comes back, in one line."""
        label = printed_name(seat.tenant, seat.vm_name)
        if seat.released_at is None:
            return f"{seat.pool}: {label} holds a seat since {format_time_to_second(seat.taken_at)}"
        return f"{seat.pool}: the seat of {label} comes back at {format_time_to_second(seat.released_at)}"

    def _note_seat(
        self, kind: EventKind, seat: LicenceSeat, *, before: Values | None = None, after: Values | None = None
    ) -> None:
        label = printed_name(seat.tenant, seat.vm_name)
        self.add_event(kind, label, tenant=seat.tenant, before=before, after=after)


def _pool(row: Row) -> LicencePool:
    return LicencePool(row.name, Edition(row.edition), row.seats, row.lease_s, row.server, row.token is not None)


def _seat(row: Row) -> LicenceSeat:
    return LicenceSeat(
        row.pool,
        row.tenant,
        row.vm_uuid,
        row.vm_name,
        Edition(row.edition),
        row.taken_at,
        row.used_at,
        row.released_at,
    )
