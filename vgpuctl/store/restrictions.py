# SPDX-License-Identifier: Apache-2.0
"""Restrictions: cordoned hosts and GPUs, quarantined GPUs and VFs, fenced hosts."""

from vgpuctl.model.restriction import Restriction, RestrictionKind
from vgpuctl.store import codec
from vgpuctl.store.hosts import HostRows


class RestrictionRows(HostRows):
    """Set, lift and list restrictions."""

    def restrict(
        self,
        host: str,
        device: str,
        kind: RestrictionKind,
        reason: str,
        *,
        finding: str | None = None,
        gpu_uuid: str | None = None,
    ) -> bool:
        """Set a restriction in the name of the one who opened the store. Returns False when there is one of this kind.

        device: a PCI address, or WHOLE_HOST. gpu_uuid: only of a whole GPU, never of a VF. A restriction that is there
        stays as it is: its reason, its finding and its time. So does that of a card which was set in another slot or
        host. That of another card which was in the slot before goes on under the UUID of that card. The host's
        generation is counted up, so that a placement that was decided before is decided again.
        """
        if gpu_uuid is not None:
            if self._find("restrictions", kind=str(kind), gpu_uuid=gpu_uuid):
                return False
            self._clear_slot(host, device, kind)
        is_new = self._insert_if_absent(
            "restrictions",
            host=host,
            device=device,
            kind=str(kind),
            reason=codec.plain_text(reason),
            finding=finding,
            gpu_uuid=gpu_uuid,
            set_by=codec.plain_text(str(self._actor)),
            set_at=self._clock(),
        )
        if is_new:
            self._count_change(host)
        return is_new

    def _clear_slot(self, host: str, device: str, kind: RestrictionKind) -> None:
        """Name the restriction of a card that was in the slot before by its UUID: the slot is another card's now."""
        slot = "host = :host AND device = :device AND kind = :kind AND gpu_uuid IS NOT NULL"
        self._write(f"UPDATE restrictions SET device = gpu_uuid WHERE {slot}", host=host, device=device, kind=str(kind))

    def lift_restriction(self, host: str, device: str, kind: RestrictionKind) -> bool:
        """Lift a restriction. Returns False when there is none."""
        return self._delete("restrictions", host=host, device=device, kind=str(kind)) > 0

    def restrictions(self) -> list[Restriction]:
        """Every restriction, by host, device and kind."""
        return [
            Restriction(
                row.host,
                row.device,
                RestrictionKind(row.kind),
                row.reason,
                row.finding,
                row.gpu_uuid,
                row.set_by,
                row.set_at,
            )
            for row in self._find("restrictions", order="host, device, kind")
        ]
