# SPDX-License-Identifier: Apache-2.0
"""The usage ledger: when which share was attached to which VM. Rows stay when leases, VMs and hosts are gone."""

from typing import TYPE_CHECKING

from vgpuctl.model.lease import Lease
from vgpuctl.store import codec
from vgpuctl.store.database import given, matching
from vgpuctl.store.hosts import HostRows

if TYPE_CHECKING:
    from vgpuctl.quota.usage import Interval


class UsageRows(HostRows):
    """List intervals; beginning and ending them is what leases do."""

    def intervals(self, since: float, until: float, tenant: str | None = None) -> "list[Interval]":
        """Intervals that touch a range of time (seconds since the epoch, UTC), the oldest first."""
        from vgpuctl.quota.usage import Interval

        of_tenant = given(tenant=tenant)
        rows = self._read(
            "SELECT * FROM usage WHERE begun_at < :until AND (ended_at IS NULL OR ended_at >= :since) "
            f"AND {matching(of_tenant)} ORDER BY begun_at, id",
            since=since,
            until=until,
            **of_tenant,
        )
        return [Interval(**{name: value for name, value in vars(row).items() if name != "id"}) for row in rows]

    def _begin_interval(self, lease: Lease, at: float) -> None:
        """Begin to count a lease, unless it is counted already."""
        if lease.id in self._open_intervals(lease.id):
            return
        from vgpuctl.catalog.profile_names import ProfileName
        from vgpuctl.quota.charge import compute_slices, part_of_card

        cached = self.facts(lease.host)
        held = lease.share
        self._insert(
            "usage",
            lease_id=lease.id,
            tenant=lease.tenant,
            vm_uuid=lease.vm_uuid,
            vm_name=codec.plain_text(lease.vm_name),
            host=lease.host,
            gpu=held.gpu,
            profile=str(ProfileName(held.profile, held.board)),
            framebuffer_mib=held.framebuffer_mib or 0,
            compute_slices=compute_slices(held),
            card_part=part_of_card(held, cached.facts.gpus if cached is not None else ()),
            begun_at=at,
            ended_at=None,
        )

    def _end_interval(self, lease_id: str, at: float) -> None:
        """End a lease's open interval, if there is one; never before its begin."""
        for row in self._find("usage", ended_at=None, lease_id=lease_id):
            self._update("usage", {"id": row.id}, ended_at=max(at, row.begun_at))

    def _open_intervals(self, lease_id: str | None = None) -> set[str]:
        return {row.lease_id for row in self._find("usage", ended_at=None, **given(lease_id=lease_id))}
