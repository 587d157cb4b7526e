# SPDX-License-Identifier: Apache-2.0
"""list-snapshots: the snapshots of a VM's disks, oldest first. It contacts no host."""

from dataclasses import dataclass

from vgpuctl.model.disk_chain import snapshot_of, snapshots_of
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import VolumeKind, VolumeState
from vgpuctl.usecases.image.volumes import recorded_volumes
from vgpuctl.usecases.support.services import Services


@dataclass(frozen=True)
class ListedSnapshot:
    """One snapshot. disks: names of its disks, `-` for the first. is_whole: False when a run on it was cut short."""

    name: str
    disks: tuple[str, ...]
    is_whole: bool


def list_snapshots(services: Services, vm: Vm) -> list[ListedSnapshot]:
    """The snapshots of a VM, oldest first."""
    volumes = recorded_volumes(services, vm)
    found = []
    for name in snapshots_of(volumes):
        overlays = [one for one in volumes if one.kind is VolumeKind.OVERLAY and snapshot_of(one) == name]
        disks = tuple(sorted(one.label.partition("/")[2] or "-" for one in overlays))
        found.append(ListedSnapshot(name, disks, all(one.state is VolumeState.MADE for one in overlays)))
    return found
