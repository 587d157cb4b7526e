# SPDX-License-Identifier: Apache-2.0
"""The gate to volumes with a real libvirtd and a real store: what others have keeps every byte."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.libvirt.test_storage import make_image
from tests.integration.store.samples import some_uuid
from tests.libvirtd_fixture import LocalLibvirtd
from vgpuctl.errors import DomainRejected, VgpuctlError, VolumeExists, VolumeRejected
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.disk import DataDisk, DiskRequest
from vgpuctl.model.image import HostImages
from vgpuctl.model.vm import CloudInit, Vm, VmRequest, VmState
from vgpuctl.model.volume import Volume, VolumeKind, VolumeState, wanted_volumes
from vgpuctl.store.store import Store, open_store
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.image.gc_volumes import read_volumes, stray_volumes
from vgpuctl.usecases.image.volumes import (
    find_own,
    make_volumes,
    recorded_volumes,
    refuse_taken_volumes,
    remove_recorded,
    remove_volumes,
)
from vgpuctl.usecases.running.services import HostSession, Openers, Services
from vgpuctl.usecases.running.undo import Undo

SIZE_MIB = 2
NO_IMAGES = HostImages()


class _Line:
    """A connection that leads to the test's libvirtd."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.way = None

    @contextlib.contextmanager
    def libvirt_uri(self) -> Iterator[str]:
        yield self._uri

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
    opened = Services(
        Openers(
            inventory=_unused,
            store=lambda: store,
            store_place=_unused,
            session=lambda _inventory, name: HostSession(
                name, line, _unused, lambda uri, host: Hypervisor(uri, host=host)
            ),
        ),
        forks=1,
        say=lambda _text: None,
    )
    opened._inventory = line
    yield opened
    opened.forget_host("gpu1")


@pytest.fixture
def host(services: Services) -> HostSession:
    return services.host("gpu1")


@pytest.fixture
def images(libvirtd: LocalLibvirtd) -> Path:
    return libvirtd.folder / "var/lib/libvirt/images"


@pytest.fixture
def owner(store: Store) -> Vm:
    request = VmRequest(
        "web-1",
        "acme",
        disk=DiskRequest(SIZE_MIB),
        data_disks=(DataDisk("data", SIZE_MIB),),
        cloud_init=CloudInit(hostname="web-1"),
    )
    vm = Vm(some_uuid(), request, "gpu1", VmState.CREATING)
    with store.transaction() as session:
        session.add_vm(vm)
    return vm


def _theirs(path: Path) -> None:
    """A qcow2 file of the size that the VM's disk would have, with data in it, or an image of any bytes."""
    if path.suffix == ".qcow2":
        make_image(path, size_mib=SIZE_MIB)
        with path.open("r+b") as file:
            # The first entry of the L1 table, and a cluster with data: what a guest's first write leaves.
            file.seek(0x30000)
            file.write((0x8000000000040000).to_bytes(8, "big"))
            file.seek(0x40000)
            file.write(b"the data of somebody else " * 4000)
    else:
        path.write_bytes(b"the data of somebody else " * 4000)


def _create(services: Services, host: HostSession, vm: Vm, *, fail: bool = False) -> None:
    with Undo(services.say) as undoing:
        make_volumes(services, host, vm, (), NO_IMAGES, undoing)
        if fail:
            raise VgpuctlError("the creation fails later")
        undoing.keep()


def _bytes(images: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in images.iterdir()}


def test_volumes_are_made_recorded_and_removed(
    services: Services, host: HostSession, owner: Vm, images: Path, store: Store
) -> None:
    _create(services, host, owner)
    disk, seed, data = (f"{owner.uuid}{end}" for end in (".qcow2", "-seed.iso", "-data-data.qcow2"))
    assert sorted(_bytes(images)) == sorted([disk, seed, data])
    recorded = recorded_volumes(services, owner)
    assert [(one.name, one.state, one.path) for one in recorded] == [
        (name, VolumeState.MADE, f"/var/lib/libvirt/images/{name}") for name in sorted((disk, seed, data))
    ]
    storage = Storage(host.hypervisor)
    assert find_own(storage, owner, recorded, VolumeKind.DISK).path == f"/var/lib/libvirt/images/{disk}"
    with pytest.raises(VolumeExists):
        refuse_taken_volumes(host, owner)
    assert remove_volumes(services, host, recorded) == []
    assert remove_volumes(services, host, recorded) == []
    assert (_bytes(images), recorded_volumes(services, owner)) == ({}, [])


def test_a_failed_creation_leaves_neither_volume_nor_record(
    services: Services, host: HostSession, owner: Vm, images: Path
) -> None:
    (images / "other.qcow2").write_bytes(b"theirs")
    before = _bytes(images)
    with pytest.raises(VgpuctlError, match="later"):
        _create(services, host, owner, fail=True)
    assert (_bytes(images), recorded_volumes(services, owner)) == (before, [])


@pytest.mark.parametrize("taken", [(".qcow2",), ("-seed.iso",), (".qcow2", "-seed.iso")])
def test_a_foreign_volume_of_the_same_name_keeps_every_byte(
    taken: tuple[str, ...], services: Services, host: HostSession, owner: Vm, images: Path
) -> None:
    for ending in taken:
        _theirs(images / f"{owner.uuid}{ending}")
    before = _bytes(images)
    with pytest.raises(VolumeExists, match="vgpuctl did not make"):
        guest.check(host, replace(owner, request=replace(owner.request, network=None)), (), NO_IMAGES)
    with pytest.raises(VolumeExists, match="vgpuctl did not make"):
        _create(services, host, owner)
    assert remove_volumes(services, host, recorded_volumes(services, owner)) == []
    assert (_bytes(images), recorded_volumes(services, owner)) == (before, [])


@pytest.mark.parametrize("kind", [VolumeKind.DISK, VolumeKind.SEED, VolumeKind.DATA])
def test_a_volume_that_took_the_place_of_an_interrupted_creation_keeps_every_byte(
    kind: VolumeKind, services: Services, host: HostSession, owner: Vm, images: Path, store: Store
) -> None:
    wanted = next(one for one in wanted_volumes(owner) if one.kind is kind)
    path = images / wanted.name
    _theirs(path)
    with store.transaction() as session:
        session.intend_volume(replace(wanted, capacity_bytes=wanted.capacity_bytes or path.stat().st_size))
    before = _bytes(images)
    assert remove_volumes(services, host, recorded_volumes(services, owner)) == []
    assert (_bytes(images), recorded_volumes(services, owner)) == (before, [])


def _cut_disk(storage: Storage, volume: Volume) -> None:
    storage.create_disk(volume.pool, volume.name, SIZE_MIB)


def _cut_seed(storage: Storage, volume: Volume) -> None:
    storage.create_image(volume.pool, volume.name, bytes(40_000) + volume.vm_uuid.encode() + bytes(24))


def _empty_seed(storage: Storage, volume: Volume) -> None:
    storage.create_image(volume.pool, volume.name, bytes(40_060))


@pytest.mark.parametrize("create", [_cut_disk, _cut_seed, _empty_seed])
def test_a_volume_of_a_run_that_was_killed_right_after_it_is_removed(
    create: Callable[[Storage, Volume], None],
    services: Services,
    host: HostSession,
    owner: Vm,
    images: Path,
    store: Store,
) -> None:
    kind = VolumeKind.DISK if create is _cut_disk else VolumeKind.SEED
    wanted = next(one for one in wanted_volumes(owner) if one.kind is kind)
    with store.transaction() as session:
        session.intend_volume(replace(wanted, capacity_bytes=wanted.capacity_bytes or 40_060))
    create(Storage(host.hypervisor), wanted)
    assert list(_bytes(images)) == [wanted.name]
    assert remove_volumes(services, host, recorded_volumes(services, owner)) == []
    assert (_bytes(images), recorded_volumes(services, owner)) == ({}, [])


def test_a_volume_that_another_domain_uses_stays_until_gc_finds_it_free(
    services: Services, host: HostSession, owner: Vm, images: Path, store: Store
) -> None:
    _create(services, host, owner)
    disk = f"/var/lib/libvirt/images/{owner.uuid}.qcow2"
    host.hypervisor.define(
        "<domain type='qemu'><name>desk</name><memory unit='MiB'>64</memory><os><type>hvm</type></os><devices>"
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{disk}'/>"
        "<target dev='vda'/></disk></devices></domain>"
    )
    before = (images / f"{owner.uuid}.qcow2").read_bytes()
    (left,) = remove_volumes(services, host, recorded_volumes(services, owner))
    assert left.endswith("is left: domain desk uses it")
    with pytest.raises(VolumeRejected, match="domain desk uses it"):
        remove_recorded(services, host, recorded_volumes(services, owner)[0])
    assert _bytes(images) == {f"{owner.uuid}.qcow2": before}

    def strays() -> list[tuple[Volume | None, str | None]]:
        with store.reading() as session:
            found = stray_volumes(session, "gpu1", *read_volumes(host), host.hypervisor.domains())
            return [(volume, garbage.left) for volume, garbage in found]

    assert strays() == [], "its VM is there"
    with store.transaction() as session:
        session.delete_vm(owner.uuid)
    (recorded,) = recorded_volumes(services, owner)
    assert strays() == [(recorded, "domain desk uses it")]
    host.hypervisor.undefine("desk")
    assert strays() == [(recorded, None)]
    remove_recorded(services, host, recorded)
    assert (_bytes(images), strays()) == ({}, [])


def test_a_rollback_leaves_the_disk_of_a_domain_that_it_could_not_remove(
    services: Services, host: HostSession, owner: Vm, images: Path
) -> None:
    _create(services, host, owner)
    host.hypervisor.define(
        f"<domain type='qemu'><name>{owner.domain_name}</name><uuid>{owner.uuid}</uuid><memory unit='MiB'>64</memory>"
        "<os><type>hvm</type></os><devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/>"
        f"<source file='/var/lib/libvirt/images/{owner.uuid}.qcow2'/><target dev='vda'/></disk></devices></domain>"
    )
    (left,) = remove_volumes(services, host, recorded_volumes(services, owner))
    assert left.endswith("is left: domain acme.web-1 uses it")
    assert list(_bytes(images)) == [f"{owner.uuid}.qcow2"]
    guest.remove_domain(host, owner)
    assert remove_volumes(services, host, recorded_volumes(services, owner)) == []
    assert _bytes(images) == {}


def test_gc_names_volumes_without_a_record_and_offers_nothing_to_delete_them(
    services: Services, host: HostSession, images: Path, store: Store
) -> None:
    for name in (f"{some_uuid()}.qcow2", f"{some_uuid()}-seed.iso", "acme.old.qcow2", "acme.old-seed.iso"):
        _theirs(images / name)
    _theirs(images / "globex.old.qcow2")
    with store.reading() as session:
        found = list(stray_volumes(session, "gpu1", *read_volumes(host), []))
    assert {volume for volume, _garbage in found} == {None}
    assert {garbage.left for _volume, garbage in found} == {"the store has no record that vgpuctl made it"}
    assert sorted(garbage.name for _volume, garbage in found) == sorted(
        f"default/{name}" for name in _bytes(images) if not name.startswith("globex")
    )


def test_a_replaced_volume_is_neither_booted_nor_deleted(
    services: Services, host: HostSession, owner: Vm, images: Path, store: Store
) -> None:
    _create(services, host, owner)
    recorded = recorded_volumes(services, owner)
    moved = [replace(one, key=f"/elsewhere/{one.name}") for one in recorded]
    before = _bytes(images)
    with pytest.raises(VolumeRejected, match="is not the volume that was made"):
        find_own(Storage(host.hypervisor), owner, moved, VolumeKind.DISK)
    assert remove_volumes(services, host, moved) == []
    assert _bytes(images) == before


def _as_raw(path: Path) -> None:
    path.write_bytes(b"the data of somebody else " * 4000)


def _as_smaller(path: Path) -> None:
    make_image(path, size_mib=SIZE_MIB - 1)


def _with_backing(path: Path) -> None:
    theirs = path.with_name("theirs.qcow2")
    make_image(theirs, size_mib=SIZE_MIB)
    overlay = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", theirs.name, str(path), f"{SIZE_MIB}M"]
    subprocess.run(overlay, check=True)


def _as_seed(path: Path) -> None:
    path.write_bytes(b"x" * path.stat().st_size)


@pytest.mark.parametrize(
    ("put", "kind", "said"),
    [
        (_as_raw, VolumeKind.DISK, "it has 104000 bytes"),
        (_as_smaller, VolumeKind.DISK, "it has 1048576 bytes, not 2097152"),
        (_with_backing, VolumeKind.DISK, "its backing file is .*theirs.qcow2, not none"),
        (_as_seed, VolumeKind.SEED, None),
    ],
)
def test_a_file_at_the_path_of_a_made_volume_keeps_every_byte(
    put: Callable[[Path], None],
    kind: VolumeKind,
    said: str | None,
    services: Services,
    host: HostSession,
    owner: Vm,
    images: Path,
) -> None:
    _create(services, host, owner)
    recorded = recorded_volumes(services, owner)
    path = images / next(one.name for one in recorded if one.kind is kind)
    put(path)
    before = path.read_bytes()
    if said is not None:
        with pytest.raises(VolumeRejected, match=f"is not the volume that was made for acme/web-1: {said}"):
            find_own(Storage(host.hypervisor), owner, recorded, kind)
    assert remove_volumes(services, host, recorded) == []
    assert path.read_bytes() == before
    assert recorded_volumes(services, owner) == []


def test_a_disk_that_has_grown_is_still_the_vms(services: Services, host: HostSession, owner: Vm, images: Path) -> None:
    _create(services, host, owner)
    recorded = recorded_volumes(services, owner)
    make_image(images / f"{owner.uuid}.qcow2", size_mib=SIZE_MIB + 1)
    assert find_own(Storage(host.hypervisor), owner, recorded, VolumeKind.DISK).backing_path is None
    assert remove_volumes(services, host, recorded) == []
    assert _bytes(images) == {}


def test_a_domain_of_the_same_name_with_another_uuid_is_refused_and_stays(
    services: Services, host: HostSession, owner: Vm
) -> None:
    host.hypervisor.define(
        f"<domain type='qemu'><name>{owner.domain_name}</name><memory unit='MiB'>64</memory>"
        "<os><type>hvm</type></os></domain>"
    )
    before = host.hypervisor.xml(owner.domain_name)
    with pytest.raises(DomainRejected, match=r"has a domain acme\.web-1 that is not this VM's"):
        guest.refuse_other_domain(host, owner)
    guest.remove_domain(host, owner)
    hypervisor = host.hypervisor
    assert not hypervisor.shutdown(owner.domain_name, 0.0, uuid=owner.uuid)
    assert not hypervisor.destroy(owner.domain_name, uuid=owner.uuid)
    assert not hypervisor.undefine(owner.domain_name, uuid=owner.uuid)
    assert hypervisor.state(owner.domain_name, uuid=owner.uuid) is None
    with pytest.raises(VgpuctlError):
        hypervisor.start(owner.domain_name, uuid=owner.uuid)
    assert hypervisor.xml(owner.domain_name) == before
