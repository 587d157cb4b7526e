# SPDX-License-Identifier: Apache-2.0
"""Change the disks of a running domain alone; its definition is written as a whole elsewhere."""

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vgpuctl.errors import DomainRejected, VolumeRejected
from vgpuctl.guests.facts.disk_facts import (
    attachable_xml,
    disk_of,
    disk_xml,
    domain_disks,
    has_caught_up,
    without_medium,
)
from vgpuctl.guests.libvirt_errors import libvirt_module, translated
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.live.domain import LiveChange, LiveDomain
from vgpuctl.guests.live.guest_agent import agent_answers
from vgpuctl.guests.templating import render_template

FREEZE_S = 30
"""How long the guest's agent may take to freeze or thaw its file systems."""
_POLL_S = 0.2
_JOB_LIMIT_S = 24 * 3600.0


class LiveDisks(LiveDomain):
    """The disks of one domain."""

    def attach(self, definition: str, serial: str) -> LiveChange:
        """Attach a disk as a definition has it; one that is there already is fine. Raises DomainRejected."""
        live = self.xml()
        if live is None:
            return LiveChange.NEXT_START
        if disk_of(live, serial) is not None:
            return LiveChange.DONE
        elements = attachable_xml(definition, live, serial, domain=self._name)
        return self._change(f"attach disk {serial} to", lambda domain: _attach(domain, elements))

    def detach(self, serial: str, *, timeout_s: float) -> LiveChange:
        """Detach a disk and wait until the running domain has it no more; `pending` when the guest keeps it.

        libvirt answers when the guest is asked; QEMU removes the device when the guest has let go of it, which a guest
        without an operating system never does. Raises DomainRejected.
        """
        live = self.xml()
        disk = None if live is None else disk_of(live, serial)
        if live is None or disk is None:
            return LiveChange.DONE
        element, flags = disk_xml(live, disk.target), libvirt_module().VIR_DOMAIN_AFFECT_LIVE
        asked = self._change(
            f"detach disk {serial} from", lambda domain: domain.detachDeviceFlags(element, flags), is_asked_before=True
        )
        if asked is LiveChange.NEXT_START:
            return LiveChange.PENDING
        return self._wait_until_gone(lambda: self._has(serial), timeout_s)

    def _has(self, serial: str) -> bool:
        live = self.xml()
        return live is not None and disk_of(live, serial) is not None

    def resize(self, path: str, size_bytes: int) -> LiveChange:
        """Grow the disk with this path, and tell the guest; `next start` when no running domain has it."""
        live = self.xml()
        disk = None if live is None else next((one for one in domain_disks(live) if one.path == path), None)
        if disk is None:
            return LiveChange.NEXT_START
        flags = libvirt_module().VIR_DOMAIN_BLOCK_RESIZE_BYTES
        return self._change(
            f"resize disk {disk.target} of", lambda domain: domain.blockResize(disk.target, size_bytes, flags)
        )

    def eject(self, path: str) -> LiveChange:
        """Eject the medium with this path. Raises DomainRejected when the guest has locked the drive."""
        live = self.xml()
        drive = None if live is None else next((one for one in domain_disks(live) if one.path == path), None)
        if live is None:
            return LiveChange.NEXT_START
        if drive is None:
            return LiveChange.DONE
        library = libvirt_module()
        element = without_medium(disk_xml(live, drive.target))
        return self._change(
            f"eject {path} from drive {drive.target} of",
            lambda domain: domain.updateDeviceFlags(element, library.VIR_DOMAIN_AFFECT_LIVE),
        )

    def snapshot(self, overlays: Mapping[str, str], *, quiesce: bool | None) -> tuple[LiveChange, bool]:
        """Let all disks write into overlays from one moment on. overlays: path of a disk → path of its overlay.

        Each overlay was made before, on the disk. Memory and devices are not part of it, so that devices held by
        VFIO do not matter. quiesce: the guest's agent freezes its file systems; None: if it can. Returns also whether
        it did. Raises DomainRejected.
        """
        live = self.xml()
        if live is None:
            return LiveChange.NEXT_START, False
        if quiesce or (quiesce is None and agent_answers(self._hypervisor, self._name, uuid=self._uuid)):
            try:
                return self._snapshot(live, overlays, quiesce=True), True
            except DomainRejected:
                if quiesce:
                    raise
        return self._snapshot(live, overlays, quiesce=False), False

    def _snapshot(self, live: str, overlays: Mapping[str, str], *, quiesce: bool) -> LiveChange:
        library = libvirt_module()
        targets = {one.path: one.target for one in domain_disks(live)}
        disks = [(target, overlays.get(path or "")) for path, target in targets.items()]
        xml = render_template("disk_snapshot.xml.j2", disks=disks)
        flags = (
            library.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
            | library.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA
            | library.VIR_DOMAIN_SNAPSHOT_CREATE_REUSE_EXT
            | library.VIR_DOMAIN_SNAPSHOT_CREATE_ATOMIC
            | (library.VIR_DOMAIN_SNAPSHOT_CREATE_QUIESCE if quiesce else 0)
        )

        def take(domain: Any) -> None:
            if not quiesce:
                domain.snapshotCreateXML(xml, flags)
                return
            domain.agentSetResponseTimeout(FREEZE_S, 0)  # libvirt's own default is to wait for ever
            try:
                domain.snapshotCreateXML(xml, flags)
            except library.libvirtError:
                with contextlib.suppress(library.libvirtError):
                    domain.fsThaw(None, 0)  # a guest that froze after the time was over
                if not self._has_all(overlays.values()):  # libvirt also fails when only the thaw did
                    raise

        return self._change("take a snapshot of the disks of", take)

    def _has_all(self, paths: Iterable[str]) -> bool:
        live = self.xml()
        return live is not None and {one.path for one in domain_disks(live)} >= set(paths)

    def merge(self, overlay: str, base: str) -> LiveChange:
        """Write an overlay that is in use into the disk below it, and go on with that. Returns when it is done.

        `next start` when the domain is off, or its driver cannot; an overlay that it does not use is done.
        Raises DomainRejected; both files stay then, and the overlay stays in use.
        """
        live = self.xml()
        disk = None if live is None else next((one for one in domain_disks(live) if one.path == overlay), None)
        if disk is None:
            return LiveChange.NEXT_START if live is None else LiveChange.DONE
        library = libvirt_module()
        flags = library.VIR_DOMAIN_BLOCK_COMMIT_ACTIVE
        started = self._change(
            f"merge disk {disk.target} of", lambda domain: domain.blockCommit(disk.target, base, overlay, 0, flags)
        )
        if started is LiveChange.DONE:
            self._wait_for_merge(disk.target)
        return started

    def _wait_for_merge(self, target: str) -> None:
        """Wait until the disk below has everything, then change over to it; without that the job is ended."""
        library = libvirt_module()
        domain, deadline = self._domain(), time.monotonic() + _JOB_LIMIT_S
        with translated(f"merge disk {target} of domain {self._name} on {self._hypervisor.host}", DomainRejected):
            try:
                while not has_caught_up(domain.XMLDesc(0), target):
                    if not domain.blockJobInfo(target, 0) or time.monotonic() > deadline:
                        raise DomainRejected(f"merging disk {target} of {self._name} ended before it was done")
                    time.sleep(_POLL_S)
                domain.blockJobAbort(target, library.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT)
            except BaseException:
                if domain.isActive() and domain.blockJobInfo(target, 0):
                    domain.blockJobAbort(target, 0)
                raise


def grow_volume(hypervisor: Hypervisor, pool: str, volume: str, size_bytes: int) -> None:
    """Grow a volume that no running domain has open. Raises VolumeRejected."""
    with translated(f"grow volume {volume} of pool {pool} on {hypervisor.host}", VolumeRejected):
        found = hypervisor.connection.storagePoolLookupByName(pool).storageVolLookupByName(volume)
        found.resize(size_bytes, 0)


def _attach(domain: Any, elements: Sequence[str]) -> None:
    """Attach devices, all or none: what is attached before one is refused is detached again."""
    library = libvirt_module()
    attached: list[str] = []
    try:
        for element in elements:
            domain.attachDeviceFlags(element, library.VIR_DOMAIN_AFFECT_LIVE)
            attached.append(element)
    except BaseException:
        for element in attached:
            domain.detachDeviceFlags(element, library.VIR_DOMAIN_AFFECT_LIVE)
        raise
