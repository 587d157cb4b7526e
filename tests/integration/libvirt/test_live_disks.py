# SPDX-License-Identifier: Apache-2.0
"""Disks of a running guest in a real QEMU: attached, resized, snapshotted, merged; and a guest that keeps its disk."""

from collections.abc import Iterator
from dataclasses import replace

import libvirt
import pytest

from tests.unit.guests.cases import REQUEST, facts, vm
from vgpuctl.errors import DomainRejected
from vgpuctl.guests.domain.disk_view import DiskView
from vgpuctl.guests.domain.render import render_domain
from vgpuctl.guests.domain.view import DomainView, domain_view
from vgpuctl.guests.facts.disk_facts import disk_of, domain_disks
from vgpuctl.guests.facts.spare_ports import free_ports
from vgpuctl.guests.facts.storage_facts import VolumeFact
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.guests.live.disks import LiveDisks, grow_volume
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.model.image import BaseImage, ImageFormat

MIB = 2**20
_DISK = (
    "<disk type='file' device='disk'><driver name='qemu' type='qcow2' discard='unmap'/><source file='{path}'/>"
    "<target dev='vdb' bus='{bus}'/><serial>{serial}</serial></disk>"
)


@pytest.fixture
def root(storage: Storage) -> VolumeFact:
    return storage.create_disk("default", "root", 64)


@pytest.fixture
def running(hypervisor: Hypervisor, root: VolumeFact) -> Iterator[DomainView]:
    """A guest without an operating system: its firmware never lets go of a device on PCI. Two ports are spare."""
    made = domain_view(
        replace(vm(), request=replace(REQUEST, spare_ports=2)), [], facts(kvm=False), disk=DiskView(root.path)
    )
    view = replace(made, memory_mib=64, vcpus=1)
    hypervisor.define(render_domain(view))
    hypervisor.start(view.name)
    yield view


def _with_disk(view: DomainView, volume: VolumeFact, bus: str) -> str:
    """The definition of a domain with one more disk, whose serial number is the volume's name."""
    disk = _DISK.format(path=volume.path, bus=bus, serial=volume.name)
    return render_domain(view).replace("  <devices>\n", f"  <devices>\n{disk}\n", 1)


def test_a_disk_takes_a_spare_port_and_the_next_one_finds_none(
    hypervisor: Hypervisor, storage: Storage, running: DomainView
) -> None:
    disks = LiveDisks(hypervisor, running.name, uuid=running.uuid)
    live = disks.xml()
    assert live is not None and free_ports(live) == (6, 5)
    for number in (1, 2):
        volume = storage.create_disk("default", f"data{number}", 16)
        assert disks.attach(_with_disk(running, volume, "virtio"), volume.name) is LiveChange.DONE
        assert disks.attach(_with_disk(running, volume, "virtio"), volume.name) is LiveChange.DONE
    live = disks.xml() or ""
    assert [(one.target, one.serial) for one in domain_disks(live)] == [
        ("vda", None),
        ("vdb", "data1"),
        ("vdc", "data2"),
    ]
    third = storage.create_disk("default", "data3", 16)
    for bus, what in (("virtio", "disk data3"), ("scsi", "a SCSI controller")):
        with pytest.raises(DomainRejected, match=f"no free port for {what}: it was started with 2 ports"):
            disks.attach(_with_disk(running, third, bus), "data3")
    with pytest.raises(DomainRejected, match="sata cannot be attached to a running guest"):
        disks.attach(_with_disk(running, third, "sata"), "data3")


def test_a_guest_that_keeps_its_disk_leaves_the_detach_pending(
    hypervisor: Hypervisor, storage: Storage, running: DomainView
) -> None:
    disks = LiveDisks(hypervisor, running.name, uuid=running.uuid)
    data = storage.create_disk("default", "data", 16)
    disks.attach(_with_disk(running, data, "virtio"), "data")
    assert disks.detach("data", timeout_s=0.5) is LiveChange.PENDING
    assert disks.detach("data", timeout_s=0.5) is LiveChange.PENDING
    assert disk_of(disks.xml() or "", "data") is not None
    hypervisor.destroy(running.name)
    assert disks.detach("data", timeout_s=0.5) is LiveChange.DONE


def test_a_scsi_disk_is_gone_at_once_and_comes_back(
    hypervisor: Hypervisor, storage: Storage, running: DomainView
) -> None:
    disks = LiveDisks(hypervisor, running.name, uuid=running.uuid)
    data = storage.create_disk("default", "data", 16)
    for _ in range(2):
        assert disks.attach(_with_disk(running, data, "scsi"), "data") is LiveChange.DONE
        assert disk_of(disks.xml() or "", "data") is not None
        assert disks.detach("data", timeout_s=20) is LiveChange.DONE
    assert len(free_ports(disks.xml() or "")) == 1  # the controller stays, with its port


def test_a_disk_grows_while_it_is_used_and_while_it_is_not(
    hypervisor: Hypervisor, storage: Storage, running: DomainView, root: VolumeFact
) -> None:
    disks = LiveDisks(hypervisor, running.name, uuid=running.uuid)
    assert disks.resize(root.path, 96 * MIB) is LiveChange.DONE
    assert hypervisor.connection.lookupByName(running.name).blockInfo("vda", 0)[0] == 96 * MIB
    hypervisor.destroy(running.name)
    assert disks.resize(root.path, 128 * MIB) is LiveChange.NEXT_START
    grow_volume(hypervisor, "default", "root", 128 * MIB)
    found = storage.find_volume("default", "root")
    assert found is not None and found.capacity_bytes == 128 * MIB


def test_a_snapshot_of_the_disks_leaves_no_metadata_and_merges_back(
    hypervisor: Hypervisor, storage: Storage, running: DomainView, root: VolumeFact
) -> None:
    disks = LiveDisks(hypervisor, running.name, uuid=running.uuid)
    overlay = storage.create_overlay("default", "root.s1", 64, BaseImage(root.path, ImageFormat.QCOW2, 64 * MIB))
    assert disks.snapshot({root.path: overlay.path}, quiesce=None) == (LiveChange.DONE, False)
    assert [one.path for one in domain_disks(disks.xml() or "")] == [overlay.path]
    assert hypervisor.connection.lookupByName(running.name).snapshotNum(0) == 0
    assert disks.merge(overlay.path, root.path) is LiveChange.DONE
    assert [one.path for one in domain_disks(disks.xml() or "")] == [root.path]
    defined = hypervisor.connection.lookupByName(running.name).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    assert [one.path for one in domain_disks(defined)] == [root.path], "the next start would use the overlay"
    assert disks.merge(overlay.path, root.path) is LiveChange.DONE
    with pytest.raises(DomainRejected, match="take a snapshot of the disks"):
        disks.snapshot({root.path: overlay.path}, quiesce=True)  # its agent does not answer


def test_a_medium_is_ejected(hypervisor: Hypervisor, storage: Storage, root: VolumeFact) -> None:
    medium = storage.create_image("default", "install.iso", bytes(2048))
    made = domain_view(vm(), [], facts(kvm=False), disk=DiskView(root.path), seed_path=medium.path)
    view = replace(made, memory_mib=64, vcpus=1)
    hypervisor.define(render_domain(view))
    disks = LiveDisks(hypervisor, view.name, uuid=view.uuid)
    assert disks.eject(medium.path) is LiveChange.NEXT_START
    hypervisor.start(view.name)
    assert disks.eject(medium.path) is LiveChange.DONE
    assert disks.eject(medium.path) is LiveChange.DONE
    assert [(one.target, one.path) for one in domain_disks(disks.xml() or "")] == [("vda", root.path), ("sda", None)]
