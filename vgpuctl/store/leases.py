# SPDX-License-Identifier: Apache-2.0
"""Leases in the store. A partial unique index allows one live lease per device of a host, whoever runs at once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vgpuctl.errors import ConcurrentChange, NotFound, UsageError
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.vm import printed_name
from vgpuctl.store import codec
from vgpuctl.store.database import Row, given, matching
from vgpuctl.store.events import EventRows
from vgpuctl.store.operations import COLLECTING
from vgpuctl.store.reclaims import ReclaimRows
from vgpuctl.store.tenants import TenantRows
from vgpuctl.store.usage import UsageRows

_LIVE = "SELECT * FROM leases WHERE state <> 'gone'"
_NOTED = {LeaseState.GONE: EventKind.LEASE_RELEASED, LeaseState.BROKEN: EventKind.LEASE_BROKEN}


class LeaseRows(UsageRows, TenantRows, ReclaimRows, EventRows):
    """Add, find and change leases. Every added lease and every changed device counts in the host's generation.

    The usage ledger follows in the same transaction: a lease whose device is built has an open interval.
    """

    def reserve(self, host: str, seen_generation: int, leases: Sequence[Lease]) -> int:
        """Add the leases of one placement, if the host's leases are as they were seen. Returns the new generation.

        seen_generation: from the CachedFacts the placement was made with, read in one transaction with the leases.
        Raises ConcurrentChange when another run changed the host's leases, holds one of the devices, or takes garbage
        away from the host, so that what comes with the leases is not taken for some.
        """
        strays = sorted({lease.host for lease in leases} - {host})
        if strays:
            raise UsageError(f"leases of host {strays[0]} cannot be reserved on host {host}")
        self.refuse_while_busy(f"host/{host}", kind=COLLECTING)
        generation = self.bump_generation(host, seen_generation)
        for lease in leases:
            self._insert_lease(lease)
            self._note_lease(EventKind.LEASE_RESERVED, lease, after=_values(lease.share, lease.state))
        return generation

    def leases(self, host: str | None = None, vm_uuid: str | None = None, *, live_only: bool = True) -> list[Lease]:
        """Leases of a host, a VM, both, or all; by host, tenant, VM and index. live_only: without those `gone`."""
        equal = given(host=host, vm_uuid=vm_uuid)
        found = self._read(f"{_LIVE} AND {matching(equal)}", **equal) if live_only else self._find("leases", **equal)
        rows = sorted(found, key=lambda row: (row.host, row.tenant, row.vm_name, row.position, row.created_at, row.id))
        return [_lease(row) for row in rows]

    def running_since(self) -> dict[str, float]:
        """When each running share was last started or changed, by its lease's id; seconds since the epoch, UTC."""
        return {row.id: row.changed_at for row in self._find("leases", state=LeaseState.RUNNING.value)}

    def leases_changed_at(self, host: str) -> dict[str, float]:
        """When each live lease of a host last changed, by its id; seconds since the epoch, UTC."""
        equal = given(host=host)
        return {row.id: row.changed_at for row in self._read(f"{_LIVE} AND {matching(equal)}", **equal)}

    def set_lease_state(self, lease_id: str, state: LeaseState, problem: str | None = None) -> None:
        """Set a lease's state; the problem is replaced, by none too.

        `gone` is the end: setting it twice changes nothing, anything else after it raises ConcurrentChange, since the
        device may be another VM's by now. Raises NotFound.
        """
        row = self._lease_row(lease_id)
        if row.state == LeaseState.GONE.value:
            if state is LeaseState.GONE:
                return
            raise ConcurrentChange(
                f"the lease of {row.device} on host {row.host} is gone, it cannot become {state.value}",
                hint="another run released the device; see `vgpuctl show-vm`",
            )
        self._change_lease(
            row,
            state=state.value,
            problem=None if problem is None else codec.plain_text(problem),
        )
        lease = _lease(row)
        self._follow(lease, state)
        kind = _NOTED.get(state)
        if kind is not None and state is not lease.state:
            after: Values = {"state": str(state)}
            self._note_lease(kind, lease, problem or "", before=_values(lease.share, lease.state), after=after)

    def set_lease_share(self, lease_id: str, share: Share) -> None:
        """Replace the share of a live lease: another device, or more known of the same one.

        Raises NotFound, and ConcurrentChange when the lease is gone or the new device is taken.
        """
        row = self._lease_row(lease_id)
        if row.state == LeaseState.GONE.value:
            raise ConcurrentChange(f"the lease of {row.device} on host {row.host} is gone")
        before = _lease(row)
        if share.device != row.device:
            self._count_change(row.host)
            before_move, after_move = (_values(one, before.state) for one in (before.share, share))
            self._note_lease(EventKind.LEASE_MOVED, before, before=before_move, after=after_move)
        elif share.profile == before.share.profile and share.type_id != before.share.type_id:
            before_ids, after_ids = ({"profile": one.profile, "type": one.type_id} for one in (before.share, share))
            self._note_lease(EventKind.LEASE_RENUMBERED, before, before=before_ids, after=after_ids)
        self._change_lease(row, device=share.device, share=codec.encode(share), share_version=codec.SHARE_VERSION)
        if share.gpu != before.share.gpu or share.profile != before.share.profile:
            self._end_interval(row.id, self._clock())
            self._follow(replace(before, share=share), before.state)

    def _note_lease(
        self,
        kind: EventKind,
        lease: Lease,
        detail: str = "",
        *,
        before: Values | None = None,
        after: Values | None = None,
    ) -> None:
        label = printed_name(lease.tenant, lease.vm_name)
        self.add_event(kind, label, detail, tenant=lease.tenant, host=lease.host, before=before, after=after)

    def ledger_faults(self) -> list[str]:
        """Where the usage ledger does not agree with the leases, in words."""
        return [fault for _lease, _lease_id, _at, fault in self._faults()]

    def fix_ledger(self) -> list[str]:
        """Make the usage ledger agree with the leases. Return a line per correction.

        A lease from before the ledger counts from its creation; an interval without a live lease ends when the lease
        last changed.
        """
        faults = self._faults()
        for lease, lease_id, at, _fault in faults:
            if lease is not None:
                self._begin_interval(lease, at)
            else:
                self._end_interval(lease_id, at)
        return [fault for _lease, _lease_id, _at, fault in faults]

    def _faults(self) -> list[tuple[Lease | None, str, float, str]]:
        """Each with the lease whose interval begins (None: it ends), the lease's id, and when."""
        open_ids = self._open_intervals()
        rows = {
            row.id: row for row in self._read(f"{_LIVE} OR id IN (SELECT lease_id FROM usage WHERE ended_at IS NULL)")
        }
        faults: list[tuple[Lease | None, str, float, str]] = []
        for lease_id in sorted(open_ids):
            row = rows.get(lease_id)
            if row is None or row.state == LeaseState.GONE.value:
                ended_at = self._clock() if row is None else row.changed_at
                faults.append((None, lease_id, ended_at, f"lease {lease_id} is gone, but its usage still counted"))
        for lease_id in sorted(rows.keys() - open_ids):
            if LeaseState(rows[lease_id].state).is_attached():
                lease = _lease(rows[lease_id])
                what = f"{lease.share.profile} of {lease.tenant}/{lease.vm_name} was used, but not counted"
                faults.append((lease, lease_id, rows[lease_id].created_at, what))
        return faults

    def _follow(self, lease: Lease, state: LeaseState) -> None:
        """Begin or end the lease's interval in the usage ledger, as its new state demands."""
        if state.is_attached():
            self._begin_interval(lease, self._clock())
        elif not state.holds_device():
            self._end_interval(lease.id, self._clock())

    def _insert_lease(self, lease: Lease) -> None:
        """Add the row. Quota that was reclaimed for its VM is in use from now on, and no longer claimed."""
        self.tenant(lease.tenant)
        self.end_claims_of(lease.tenant, lease.vm_name)
        now = self._clock()
        self._insert(
            "leases",
            id=lease.id,
            vm_uuid=lease.vm_uuid,
            tenant=lease.tenant,
            vm_name=lease.vm_name,
            host=lease.host,
            position=lease.index,
            device=lease.share.device,
            share=codec.encode(lease.share),
            share_version=codec.SHARE_VERSION,
            state=lease.state.value,
            problem=None if lease.problem is None else codec.plain_text(lease.problem),
            created_at=now,
            changed_at=now,
            conflict=f"{lease.share.device} on host {lease.host} is leased already, or GPU {lease.index} of VM "
            f"{lease.vm_name} has a lease",
        )
        self._follow(lease, lease.state)

    def _lease_row(self, lease_id: str) -> Row:
        for row in self._find("leases", id=lease_id):
            return row
        raise NotFound(f"there is no lease {lease_id} in the store {self._store_name}")

    def _change_lease(self, row: Row, **values: Any) -> None:
        device = values.get("device", row.device)
        conflict = f"{device} on host {row.host} is leased already"
        self._update("leases", {"id": row.id}, conflict=conflict, changed_at=self._clock(), **values)


def _lease(row: Row) -> Lease:
    held = codec.decode_share(row.share, row.share_version, what=f"lease {row.id} of {row.device}")
    return Lease(
        row.id,
        row.vm_uuid,
        row.tenant,
        row.vm_name,
        row.host,
        row.position,
        held,
        LeaseState(row.state),
        row.problem,
    )


def _values(share: Share, state: LeaseState) -> Values:
    return {"state": str(state), "profile": share.profile, "device": share.vfio_device, "gpu": share.gpu}
