# SPDX-License-Identifier: Apache-2.0
"""Storage volumes of VMs. A row exists from before the volume is created until after it is deleted."""

from dataclasses import asdict, replace
from typing import Any

from vgpuctl.errors import ConcurrentChange, NotFound
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import printed_name
from vgpuctl.model.volume import KEPT, Volume, VolumeKind, VolumeState
from vgpuctl.store import codec
from vgpuctl.store.database import Row, given
from vgpuctl.store.events import EventRows
from vgpuctl.store.object_quotas import ObjectQuotaRows


class VolumeRows(ObjectQuotaRows, EventRows):
    """Add, find, change and delete the records of volumes."""

    def intend_volume(self, volume: Volume) -> None:
        """Record a volume that is about to be made.

        Raises QuotaExceeded, and ConcurrentChange when its name is recorded already, or another VM of the tenant has a
        data disk of its label: the name of a data disk is unique within a tenant.
        """
        with self.within_quota(volume.tenant, str(volume)):
            self._intend(volume)

    def _intend(self, volume: Volume) -> None:
        if volume.kind is VolumeKind.DATA:
            self._refuse_other_disk(volume)
        self._insert(
            "volumes",
            **{**asdict(volume), "kind": volume.kind.value, "state": VolumeState.INTENDED.value},
            created_at=self._clock(),
            conflict=f"{volume} is recorded for a VM already",
        )

    def _refuse_other_disk(self, volume: Volume) -> None:
        for row in self._find("volumes", tenant=volume.tenant, kind=volume.kind, label=volume.label):
            if row.vm_uuid == volume.vm_uuid:
                continue
            owner = "no VM" if row.vm_uuid.startswith(KEPT) else f"VM {row.vm_name}"
            raise ConcurrentChange(
                f"tenant {volume.tenant} has another disk {volume.label} since just now: {owner} has it, on {row.host}",
                hint=f"choose another name; see `vgpuctl list-disks --tenant {volume.tenant}`",
            )

    def set_volume_made(
        self, volume: Volume, *, key: str, path: str, format_name: str, backing_path: str | None = None
    ) -> None:
        """Note that libvirt made the volume, with its key, path, format and backing file. Raises NotFound."""
        values = {
            "state": VolumeState.MADE.value,
            "key": codec.plain_text(key),
            "path": codec.plain_text(path),
            "format": codec.plain_text(format_name),
            "backing_path": None if backing_path is None else codec.plain_text(backing_path),
        }
        if self._update("volumes", _is(volume), **values) != 1:
            raise NotFound(f"{volume} is not recorded in the store {self._store_name}")
        self._note_volume(
            EventKind.VOLUME_MADE, volume, after={"pool": volume.pool, "name": volume.name, "path": values["path"]}
        )

    def restore_volume(self, volume: Volume) -> None:
        """Record a volume that was found on its host as it is there, whatever quotas say.

        Raises ConcurrentChange as `intend_volume`.
        """
        self._intend(volume)
        self.set_volume_made(
            volume,
            key=volume.key or "",
            path=volume.path or "",
            format_name=volume.format or "",
            backing_path=volume.backing_path,
        )

    def hand_over_volume(self, volume: Volume, host: str) -> None:
        """Record a volume on shared storage for another host, which has it now. Raises NotFound."""
        if self._update("volumes", _is(volume), host=host) != 1:
            raise NotFound(f"{volume} is not recorded in the store {self._store_name}")

    def forget_volume(self, volume: Volume) -> bool:
        """Delete the record of a volume that is gone, or was never made. Returns False when there was none."""
        if self._delete("volumes", **_is(volume)) != 1:
            return False
        before = {"pool": volume.pool, "name": volume.name, "state": str(volume.state)}
        self._note_volume(EventKind.VOLUME_FORGOTTEN, volume, before=before)
        return True

    def keep_volume(self, volume: Volume) -> None:
        """Make a VM's data disk its tenant's own: no VM has it any more. Raises NotFound, ConcurrentChange."""
        self._give_volume(volume, KEPT + volume.tenant, volume.vm_name)
        self._note_volume(EventKind.VOLUME_KEPT, volume, after={"disk": volume.label, "name": volume.name})

    def take_volume(self, volume: Volume, vm_uuid: str, vm_name: str) -> None:
        """Give a disk that a tenant kept to one of its VMs. Raises NotFound when another run was faster."""
        self._give_volume(volume, vm_uuid, vm_name)
        self._note_volume(
            EventKind.VOLUME_TAKEN, replace(volume, vm_name=vm_name), after={"disk": volume.label, "name": volume.name}
        )

    def begin_detach(self, volume: Volume) -> Volume:
        """Note that a data disk leaves its VM, or that an overlay is dropped; a running domain may still have it.

        Returns it as it is now. Raises NotFound.
        """
        return self._change_volume(volume, state=VolumeState.DETACHING, keep=True)

    def begin_merge(self, volume: Volume) -> Volume:
        """Note that the content of an overlay goes into the disk below it. Returns it. Raises NotFound."""
        return self._change_volume(volume, state=VolumeState.MERGING)

    def set_volume_size(self, volume: Volume, capacity_bytes: int) -> Volume:
        """Note that a volume has grown. Raises NotFound."""
        return self._change_volume(volume, capacity_bytes=capacity_bytes)

    def _change_volume(self, volume: Volume, **values: Any) -> Volume:
        if self._update("volumes", _is(volume), **values) != 1:
            raise NotFound(f"{volume} is not recorded in the store {self._store_name} as it was")
        return replace(volume, **values)

    def _give_volume(self, volume: Volume, vm_uuid: str, vm_name: str) -> None:
        values: dict[str, Any] = {"vm_uuid": vm_uuid, "vm_name": vm_name, "keep": True, "state": VolumeState.MADE}
        conflict = f"tenant {volume.tenant} has another disk {volume.label} on {volume.host}"
        if self._update("volumes", _is(volume), conflict=conflict, **values) != 1:
            raise NotFound(f"{volume} is not recorded in the store {self._store_name} as it was")

    def volumes(
        self, *, host: str | None = None, vm_uuid: str | None = None, tenant: str | None = None
    ) -> list[Volume]:
        """Recorded volumes of a host, a VM, a tenant, or all; by host, pool and name."""
        found = map(_volume, self._find("volumes", **given(host=host, vm_uuid=vm_uuid, tenant=tenant)))
        return sorted(found, key=lambda volume: (volume.host, volume.pool, volume.name))

    def volume_times(self, vm_uuid: str) -> dict[str, float]:
        """When each volume of a VM was recorded, before it was made, by name; seconds since the epoch, UTC."""
        return {row.name: row.created_at for row in self._find("volumes", vm_uuid=vm_uuid)}

    def _note_volume(
        self, kind: EventKind, volume: Volume, *, before: Values | None = None, after: Values | None = None
    ) -> None:
        label = printed_name(volume.tenant, volume.vm_name)
        detail = str(volume.kind)
        self.add_event(kind, label, detail, tenant=volume.tenant, host=volume.host, before=before, after=after)


def _is(volume: Volume) -> dict[str, Any]:
    return {"host": volume.host, "pool": volume.pool, "name": volume.name, "vm_uuid": volume.vm_uuid}


def _volume(row: Row) -> Volume:
    fields = {name: value for name, value in vars(row).items() if name != "created_at"}
    return Volume(**{**fields, "kind": VolumeKind(row.kind), "state": VolumeState(row.state)})
