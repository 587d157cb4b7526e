# SPDX-License-Identifier: Apache-2.0
"""The usage ledger: when which share was attached to which VM. Rows stay when leases, VMs and hosts are gone."""

from sqlalchemy import Select, insert, or_, select, update

from vgpuctl.model.lease import Lease
from vgpuctl.quota.charge import compute_slices, part_of_card
from vgpuctl.quota.usage import Interval
from vgpuctl.store import codec, tables
from vgpuctl.store.hosts import HostRows

_USAGE = tables.usage


class UsageRows(HostRows):
    """List intervals; beginning and ending them is what leases do."""

    def intervals(self, since: float, until: float, tenant: str | None = None) -> list[Interval]:
        """Intervals that touch a range of time (seconds since the epoch, UTC), the oldest first."""
        query = (
            select(*(column for column in _USAGE.c if column.name != "id"))
            .where(_USAGE.c.begun_at < until, or_(_USAGE.c.ended_at.is_(None), _USAGE.c.ended_at >= since))
            .order_by(_USAGE.c.begun_at, _USAGE.c.id)
        )
        if tenant is not None:
            query = query.where(_USAGE.c.tenant == tenant)
        return [Interval(**row._mapping) for row in self._read(query)]

    def _begin_interval(self, lease: Lease, at: float) -> None:
        """Begin to count a lease, unless it is counted already."""
        if lease.id in self._open_intervals(lease.id):
            return
        cached = self.facts(lease.host)
        held = lease.share
        self._write(
            insert(_USAGE).values(
                lease_id=lease.id,
                tenant=lease.tenant,
                vm_uuid=lease.vm_uuid,
                vm_name=codec.plain_text(lease.vm_name),
                host=lease.host,
                gpu=held.gpu,
                profile=held.profile,
                framebuffer_mib=held.framebuffer_mib or 0,
                compute_slices=compute_slices(held),
                card_part=part_of_card(held, cached.facts.gpus if cached is not None else ()),
                begun_at=at,
                ended_at=None,
            )
        )

    def _end_interval(self, lease_id: str, at: float) -> None:
        """End a lease's open interval, if there is one; never before its begin."""
        for row in self._read(_open().where(_USAGE.c.lease_id == lease_id)):
            self._write(update(_USAGE).where(_USAGE.c.id == row.id).values(ended_at=max(at, row.begun_at)))

    def _open_intervals(self, lease_id: str | None = None) -> set[str]:
        query = _open() if lease_id is None else _open().where(_USAGE.c.lease_id == lease_id)
        return {row.lease_id for row in self._read(query)}


def _open() -> Select[tuple[int, str, float]]:
    return select(_USAGE.c.id, _USAGE.c.lease_id, _USAGE.c.begun_at).where(_USAGE.c.ended_at.is_(None))
