# SPDX-License-Identifier: Apache-2.0
"""The files of a VM's disks on its host: the one that the guest writes into, and those below it."""

from collections.abc import Sequence

from vgpuctl.guests.domain.disk_view import BackingView, DiskView
from vgpuctl.guests.facts.disk_facts import domain_disks
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.disk_chain import DiskChain, chains
from vgpuctl.model.image import HostImages, ImageFormat
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume, VolumeKind, VolumeState
from vgpuctl.usecases.image.volumes import find_own
from vgpuctl.usecases.running.services import HostSession


def chains_of(host: HostSession, vm: Vm, volumes: Sequence[Volume]) -> list[DiskChain]:
    """The disks of a VM with their overlays. The domain is asked where an overlay is merging."""
    merging = any(one.state is VolumeState.MERGING for one in volumes)
    xml = host.hypervisor.xml(vm.domain_name) if merging else None
    used = None if xml is None else {one.path for one in domain_disks(xml) if one.path is not None}
    return [one for one in chains(volumes, used) if one.disk.state is not VolumeState.DETACHING]


def first_disk(host: HostSession, vm: Vm, volumes: Sequence[Volume], images: HostImages) -> DiskView | None:
    """The files of a VM's first disk; None when it has none. Raises VolumeRejected for one that is not its own."""
    if vm.request.disk is None:
        return None
    place = find_own(Storage(host.hypervisor), vm, volumes, VolumeKind.DISK)
    backing = place.backing_path if images.base is None else images.base.path
    known = images.base_format if backing is not None else None
    base = None if backing is None or known is None else BackingView(backing, known)
    path, below = _with_overlays(host, vm, volumes, VolumeKind.DISK, "")
    # Without the format of the base image nothing below the disk is named: QEMU then reads the headers, which
    # name it. A part of the chain would cut off the rest.
    return DiskView(path, base, below if backing is None or base is not None else ())


def data_disks(host: HostSession, vm: Vm, volumes: Sequence[Volume]) -> dict[str, DiskView]:
    """The files of a VM's data disks, by name. Raises VolumeRejected for one that is not its own."""
    found = {}
    for disk in vm.request.data_disks:
        path, below = _with_overlays(host, vm, volumes, VolumeKind.DATA, disk.name)
        found[disk.name] = DiskView(path, None, below)
    return found


def _with_overlays(
    host: HostSession, vm: Vm, volumes: Sequence[Volume], kind: VolumeKind, label: str
) -> tuple[str, tuple[BackingView, ...]]:
    """The path that the guest writes into, and the VM's own volumes below it, highest first."""
    storage = Storage(host.hypervisor)
    lowest = find_own(storage, vm, volumes, kind, label).path
    chain = next(one for one in chains_of(host, vm, volumes) if (one.disk.kind, one.disk.label) == (kind, label))
    paths = [lowest, *(find_own(storage, vm, volumes, VolumeKind.OVERLAY, one.label).path for one in chain.overlays)]
    *lower, active = paths
    return active, tuple(BackingView(path, ImageFormat.QCOW2) for path in reversed(lower))
