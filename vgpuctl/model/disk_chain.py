# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a VM's disks: each is one overlay per disk, on which the guest writes from that moment on."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import UsageError
from vgpuctl.model.vm import check_name
from vgpuctl.model.volume import Volume, VolumeKind, VolumeState

MOST_SNAPSHOTS = 8
"""Each snapshot makes the guest's reads slower, as QEMU looks through all overlays of a disk."""


@dataclass(frozen=True)
class DiskChain:
    """A disk with its overlays, lowest first. The guest writes into the last of them."""

    disk: Volume
    overlays: tuple[Volume, ...] = ()

    @property
    def active(self) -> Volume:
        """The volume that the guest writes into."""
        return self.overlays[-1] if self.overlays else self.disk

    def below(self, overlay: Volume) -> Volume:
        """The volume under an overlay."""
        number = self.overlays.index(overlay)
        return self.overlays[number - 1] if number else self.disk

    def overlay_of(self, snapshot: str) -> Volume | None:
        """The overlay that a snapshot put on this disk."""
        return next((one for one in self.overlays if snapshot_of(one) == snapshot), None)


def chains(volumes: Sequence[Volume], used: Collection[str] | None = None) -> list[DiskChain]:
    """The disks of a VM with their overlays, the first disk first, then data disks by name.

    used: paths that the VM's domain has as disks, by which it is known whether a `merging` overlay is still in use;
    None to count it as in use. An overlay that is dropped is in no chain, and neither are those of a snapshot of
    which one was not made: the guest never wrote into them.
    """
    unfinished = {snapshot_of(one) for one in volumes if one.kind is VolumeKind.OVERLAY and not one.is_made}
    disks = [one for one in volumes if one.kind in (VolumeKind.DISK, VolumeKind.DATA)]
    found = []
    for disk in sorted(disks, key=lambda one: (one.kind is VolumeKind.DATA, one.label)):
        left = [one for one in volumes if one.kind is VolumeKind.OVERLAY and _disk_of(one) == disk.label]
        left = [one for one in left if _counts(one, used) and snapshot_of(one) not in unfinished]
        chain = DiskChain(disk)
        while (above := next((one for one in left if one.backing_path == chain.active.path), None)) is not None:
            left.remove(above)
            chain = replace(chain, overlays=(*chain.overlays, above))
        found.append(chain)
    return found


def snapshots_of(volumes: Sequence[Volume]) -> list[str]:
    """Names of a VM's snapshots, oldest first."""
    ordered = [snapshot_of(one) for chain in chains(volumes) for one in chain.overlays]
    left = sorted({snapshot_of(one) for one in volumes if one.kind is VolumeKind.OVERLAY} - set(ordered))
    return list(dict.fromkeys([*ordered, *left]))


def overlay_on(chain: DiskChain, snapshot: str, capacity_bytes: int) -> Volume:
    """The overlay that a new snapshot puts on a disk, before it is made."""
    disk = chain.disk
    return replace(
        disk,
        kind=VolumeKind.OVERLAY,
        name=f"{disk.name.removesuffix('.qcow2')}.{snapshot}.qcow2",
        label=f"{snapshot}/{disk.label}",
        state=VolumeState.INTENDED,
        capacity_bytes=capacity_bytes,
        key=None,
        path=None,
        format=None,
        backing_path=None,
        keep=None,
    )


def snapshot_of(overlay: Volume) -> str:
    """The snapshot that an overlay is of."""
    return overlay.label.partition("/")[0]


def check_snapshot_name(text: str) -> str:
    """Accept the name of a snapshot. Raises UsageError."""
    if "/" in text:
        raise UsageError(f"snapshot {text[:80]!a} cannot be used", hint="use letters, digits, '.', '-' and '_'")
    return check_name(text, what="snapshot")


def _disk_of(overlay: Volume) -> str:
    return overlay.label.partition("/")[2]


def _counts(overlay: Volume, used: Collection[str] | None) -> bool:
    if overlay.state is VolumeState.MERGING:
        return used is None or overlay.path in used
    return overlay.state is VolumeState.MADE
