# SPDX-License-Identifier: Apache-2.0
"""The disks of a running VM by the use cases, with a real store and a real QEMU whose guest has no operating system."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt
import pytest

from tests.integration.store.samples import some_uuid
from tests.libvirtd_fixture import LocalLibvirtd
from tests.unit.guests.cases import facts
from vgpuctl.errors import DomainRejected, StateError
from vgpuctl.guests.facts.disk_facts import domain_disks
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.model.disk import DataDisk, DiskBus, DiskRequest
from vgpuctl.model.image import HostImages
from vgpuctl.model.vm import CloudInit, Vm, VmRequest, VmState
from vgpuctl.store.store import Store, open_store
from vgpuctl.usecases.disk.attach_disk import attach_disk
from vgpuctl.usecases.disk.create_snapshot import create_snapshot
from vgpuctl.usecases.disk.detach_disk import detach_disk
from vgpuctl.usecases.disk.disks import delete_disk
from vgpuctl.usecases.disk.eject_iso import eject_iso
from vgpuctl.usecases.disk.resize_disk import resize_disk
from vgpuctl.usecases.disk.snapshots import delete_snapshot, list_snapshots, revert_snapshot
from vgpuctl.usecases.disk.tenant_disks import TenantDisk, named_disk
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.definition import parts_again
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.image.volumes import make_volumes
from vgpuctl.usecases.running.services import HostSession, Openers, Services
from vgpuctl.usecases.running.undo import Undo
from vgpuctl.usecases.vm.delete_vm import delete_vm

MIB = 2**20


class _Line:
    """A connection that leads to the test's libvirtd."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.way = None

    @contextlib.contextmanager
    def libvirt_uri(self) -> Iterator[str]:
        yield self._uri

    def require(self, name: str) -> None:
        """Every host is in this inventory."""

    def close(self) -> None:
        """There is nothing to close."""


class _Agent:
    """The facts of a host without KVM and GPUs."""

    def facts(self) -> Any:
        return facts(kvm=False)

    def close(self) -> None:
        """There is nothing to close."""


def _unused(*_arguments: object) -> Any:
    raise AssertionError("this test needs no such thing")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as opened:
        with opened.transaction() as session:
            session.add_tenant("acme")
        yield opened


@pytest.fixture
def services(libvirtd: LocalLibvirtd, store: Store, storage: Storage) -> Iterator[Services]:
    line: Any = _Line(libvirtd.uri)
    agent: Any = _Agent()
    opened = Services(
        Openers(
            inventory=_unused,
            store=lambda: store,
            store_place=_unused,
            session=lambda _inventory, name: HostSession(
                name, line, lambda _line: agent, lambda uri, host: Hypervisor(uri, host=host)
            ),
        ),
        forks=1,
        say=lambda _text: None,
    )
    opened._inventory = line
    yield opened
    opened.forget_host("gpu1")


@pytest.fixture
def running(services: Services) -> Vm:
    """A VM that runs, with a first disk of 64 MiB, a seed, and two spare ports."""
    request = VmRequest(
        "web-1",
        "acme",
        vcpus=1,
        memory_mib=64,
        network=None,
        disk=DiskRequest(64),
        cloud_init=CloudInit(hostname="web-1"),
        spare_ports=2,
    )
    vm = Vm(some_uuid(), request, "gpu1", VmState.CREATING)
    with services.store.transaction() as session:
        session.add_vm(vm)
    host = services.host("gpu1")
    with Undo(services.say) as undoing:
        make_volumes(services, host, vm, (), HostImages(), undoing)
        undoing.keep()
    guest.define(host, parts_again(services, host, vm))
    host.hypervisor.start(vm.domain_name)
    with services.store.transaction() as session:
        session.set_vm_state(vm.uuid, VmState.RUNNING)
    return replace(vm, state=VmState.RUNNING)


def _serials(services: Services, vm: Vm, *, defined: bool = False) -> list[str | None]:
    domain = services.host("gpu1").hypervisor.connection.lookupByUUIDString(vm.uuid)
    xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE if defined else 0)
    return [one.serial for one in domain_disks(xml) if not one.is_cdrom]


def _paths(services: Services, vm: Vm, *, defined: bool = False) -> list[str]:
    domain = services.host("gpu1").hypervisor.connection.lookupByUUIDString(vm.uuid)
    xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE if defined else 0)
    return [(one.path or "").rpartition("/")[2] for one in domain_disks(xml) if not one.is_cdrom]


def _now(services: Services, vm: Vm) -> Vm:
    return find_vm(services, "acme", vm.request.name)[0]


def _stop(services: Services, vm: Vm) -> Vm:
    services.host("gpu1").hypervisor.destroy(vm.domain_name)
    with services.store.transaction() as session:
        session.set_vm_state(vm.uuid, VmState.STOPPED)
    return _now(services, vm)


def _data(services: Services) -> TenantDisk:
    with services.store.reading() as session:
        return named_disk(session, "acme", "data")


def _start(services: Services, vm: Vm) -> Vm:
    host = services.host("gpu1")
    guest.define(host, parts_again(services, host, _now(services, vm)))
    host.hypervisor.start(vm.domain_name)
    with services.store.transaction() as session:
        session.set_vm_state(vm.uuid, VmState.RUNNING)
    return _now(services, vm)


def test_a_running_guest_gets_a_disk_and_gives_it_back(services: Services, running: Vm) -> None:
    scsi = DataDisk("data", 16, bus=DiskBus.SCSI, iops=500)
    done = attach_disk(services, running, scsi)
    assert (done.changed, done.outcome) == (True, LiveChange.DONE)
    assert attach_disk(services, running, scsi).changed is False
    assert _serials(services, running) == _serials(services, running, defined=True) == [None, "data"]
    with pytest.raises(StateError, match="disk data: it is attached to VM web-1 of tenant acme on gpu1"):
        delete_disk(services, _data(services))
    done = detach_disk(services, running, "data", timeout_s=20)
    assert (done.changed, done.outcome) == (True, LiveChange.DONE)
    assert _serials(services, running) == _serials(services, running, defined=True) == [None]
    assert attach_disk(services, _now(services, running), DataDisk("data")).outcome is LiveChange.DONE
    detach_disk(services, running, "data", timeout_s=20)
    delete_disk(services, _data(services))
    assert "data" not in str(Storage(services.host("gpu1").hypervisor).volumes("default"))


def test_a_guest_that_does_not_let_go_keeps_the_disk_from_everybody(services: Services, running: Vm) -> None:
    attach_disk(services, running, DataDisk("data", 16, bus=DiskBus.VIRTIO))
    assert detach_disk(services, running, "data", timeout_s=0).outcome is LiveChange.PENDING
    assert _serials(services, running) == [None, "data"]
    assert _serials(services, running, defined=True) == [None]
    with pytest.raises(StateError, match="has not released it yet"):
        attach_disk(services, _now(services, running), DataDisk("data"))
    with pytest.raises(StateError, match="has not released it yet"):
        delete_disk(services, _data(services))
    assert [one.name for one in Storage(services.host("gpu1").hypervisor).volumes("default") if "data" in one.name]
    stopped = _stop(services, running)
    assert attach_disk(services, stopped, DataDisk("data")).outcome is LiveChange.NEXT_START


def test_without_a_free_port_nothing_of_the_disk_is_left(services: Services, running: Vm) -> None:
    for name in ("one", "two"):
        attach_disk(services, _now(services, running), DataDisk(name, 16, bus=DiskBus.VIRTIO))
    before = _now(services, running), _serials(services, running, defined=True)
    with pytest.raises(DomainRejected, match="started with 2 ports for further devices, and none is free"):
        attach_disk(services, before[0], DataDisk("three", 16, bus=DiskBus.VIRTIO))
    assert (_now(services, running), _serials(services, running, defined=True)) == before
    assert "three" not in str(Storage(services.host("gpu1").hypervisor).volumes("default"))
    with services.store.reading() as session:
        assert sorted(one.label for one in session.volumes() if one.label) == ["one", "two"]


def test_disks_grow_and_never_shrink(services: Services, running: Vm) -> None:
    assert resize_disk(services, running, None, 96).changed
    assert not resize_disk(services, _now(services, running), None, 96).changed
    with pytest.raises(StateError, match="cannot shrink to 64 MiB"):
        resize_disk(services, _now(services, running), None, 64)
    request = _now(services, running).request
    assert request.disk is not None and request.disk.size_mib == 96
    stopped = _stop(services, running)
    assert resize_disk(services, stopped, None, 128).after_bytes == 128 * MIB
    assert resize_disk(services, _now(services, stopped), None, 128).changed is False


def test_snapshots_of_a_running_guest_are_taken_reverted_and_merged(services: Services, running: Vm) -> None:
    attach_disk(services, running, DataDisk("data", 16, bus=DiskBus.SCSI, keep=True))
    vm = _now(services, running)
    plain = _paths(services, vm)
    first_one = create_snapshot(services, vm, "first")
    assert (first_one.disks, first_one.is_frozen) == (("-", "data"), False)
    assert create_snapshot(services, vm, "first").changed is False
    first = [path.replace(".qcow2", ".first.qcow2") for path in plain]
    assert _paths(services, vm) == _paths(services, vm, defined=True) == first
    create_snapshot(services, vm, "second")
    assert [(one.name, one.is_whole) for one in list_snapshots(services, vm)] == [("first", True), ("second", True)]
    with pytest.raises(StateError, match="snapshot first has newer ones above it: second"):
        delete_snapshot(services, vm, "first")
    for refused in (
        lambda: resize_disk(services, vm, None, 256),
        lambda: detach_disk(services, vm, "data", timeout_s=0),
        lambda: delete_vm(services, vm, timeout_s=0),
    ):
        with pytest.raises(StateError, match=r"snapshots, the newest (is )?second"):
            refused()
    with pytest.raises(StateError, match="runs, and its disks cannot be reverted"):
        revert_snapshot(services, vm, "second")

    stopped = _stop(services, vm)
    with pytest.raises(StateError, match="merges the disks of running guests only"):
        delete_snapshot(services, stopped, "second")
    revert_snapshot(services, stopped, "second")
    again = _start(services, stopped)
    assert _paths(services, again) == first
    delete_snapshot(services, again, "first")
    assert _paths(services, again) == _paths(services, again, defined=True) == plain
    assert list_snapshots(services, again) == []
    names = {one.name for one in Storage(services.host("gpu1").hypervisor).volumes("default")}
    assert names == {*plain, f"{vm.uuid}-seed.iso"}
    delete_vm(services, again, timeout_s=0)
    with services.store.reading() as session:
        assert [(one.label, one.is_kept) for one in session.volumes()] == [("data", True)]


def test_the_quiet_guest_of_a_snapshot_has_to_answer(services: Services, running: Vm) -> None:
    before = _paths(services, running)
    with pytest.raises(DomainRejected, match="take a snapshot of the disks of"):
        create_snapshot(services, running, "still", quiesce=True)
    assert _paths(services, running) == before and list_snapshots(services, running) == []


def test_ejecting_leaves_the_seed(services: Services, running: Vm) -> None:
    done = eject_iso(services, running)
    assert (done.changed, done.media, done.left) == (False, (), ())
    xml = services.host("gpu1").hypervisor.xml(running.domain_name) or ""
    assert [one.path for one in domain_disks(xml) if one.is_cdrom] != [None]
