# SPDX-License-Identifier: Apache-2.0
"""Pools, disks and seeds through the storage API of a real libvirtd."""

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import libvirt
import pytest

from tests.libvirtd_fixture import LocalLibvirtd
from vgpuctl.errors import VolumeExists, VolumeRejected
from vgpuctl.guests.facts.storage_facts import is_refused_as_existing
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.guests.templating import render_template
from vgpuctl.model.image import BaseImage, ImageFormat

MIB = 2**20


@pytest.fixture
def images(libvirtd: LocalLibvirtd) -> Iterator[Path]:
    """The default pool's folder as the tests see it; the daemon knows it as /var/lib/libvirt/images."""
    yield libvirtd.folder / "var/lib/libvirt/images"


@pytest.fixture
def elsewhere(libvirtd: LocalLibvirtd) -> Iterator[Path]:
    """A folder on the host that belongs to no pool."""
    folder = libvirtd.folder / "elsewhere"
    folder.mkdir()
    yield folder
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def make_image(path: Path, *, image_format: str = "qcow2", size_mib: int = 1) -> None:
    subprocess.run(["qemu-img", "create", "-q", "-f", image_format, str(path), f"{size_mib}M"], check=True)


def test_the_default_pool_is_made_once_and_started_again(hypervisor: Hypervisor, storage: Storage) -> None:
    assert not storage.ensure_pool("default")
    handle = hypervisor.connection.storagePoolLookupByName("default")
    assert handle.autostart()
    handle.destroy()
    assert storage.ensure_pool("default")
    handle.destroy()
    handle.undefine()
    assert storage.ensure_pool("default")
    assert [(pool.name, pool.path, pool.is_active) for pool in storage.pools()] == [
        ("default", "/var/lib/libvirt/images", True)
    ]


def test_another_pool_must_exist_and_be_active(hypervisor: Hypervisor, storage: Storage, elsewhere: Path) -> None:
    with pytest.raises(VolumeRejected, match="gpu1 has no storage pool 'fast'") as caught:
        storage.create_disk("fast", "a.qcow2", 1)
    assert caught.value.context == ("default: /var/lib/libvirt/images",)
    xml = render_template("pool.xml.j2", name="fast", path=str(elsewhere))
    handle = hypervisor.connection.storagePoolDefineXML(xml, 0)
    with pytest.raises(VolumeRejected, match="is not active") as inactive:
        storage.ensure_pool("fast")
    assert "virsh pool-start fast" in (inactive.value.hint or "")
    handle.create(0)
    assert not storage.ensure_pool("fast")
    handle.destroy()
    handle.undefine()


def base_of(path: Path | str, image_format: ImageFormat = ImageFormat.QCOW2, size_mib: int = 1) -> BaseImage:
    return BaseImage(str(path), image_format, size_mib * MIB)


def test_an_overlay_stands_on_a_volume_of_the_pool(storage: Storage, images: Path) -> None:
    make_image(images / "debian.qcow2", size_mib=3)
    path = storage.find_volume_path("default", "debian.qcow2")
    assert path == "/var/lib/libvirt/images/debian.qcow2"
    made = storage.create_overlay("default", "web.qcow2", 10, base_of(path, size_mib=3))
    assert made.format == "qcow2"
    assert made.capacity_bytes == 10 * MIB
    assert made.backing_path == path
    assert made.path == made.key == "/var/lib/libvirt/images/web.qcow2"
    assert storage.find_volume("default", "web.qcow2") == made
    assert storage.find_volume_path("default", "ubuntu.qcow2") is None
    assert storage.find_volume_path("fast", "debian.qcow2") is None


@pytest.mark.parametrize("image_format", list(ImageFormat))
def test_an_overlay_stands_on_a_file_anywhere_on_the_host(
    storage: Storage, elsewhere: Path, image_format: ImageFormat
) -> None:
    base = elsewhere / "debian image & co.img"
    make_image(base, image_format=image_format.value)
    assert storage.create_overlay("default", "web.qcow2", 2, base_of(base, image_format)).backing_path == str(base)
    assert [pool.name for pool in storage.pools()] == ["default"]
    assert base.exists()


def test_a_raw_base_that_looks_like_qcow2_stays_raw(storage: Storage, images: Path, elsewhere: Path) -> None:
    """CVE-2026-24708: a guest writes a qcow2 header into its raw disk; who probes it opens the file it names."""
    secret, base = elsewhere / "secret.img", elsewhere / "raw.img"
    make_image(secret, image_format="raw")
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(secret), str(base), "1M"], check=True
    )
    storage.create_overlay("default", "web.qcow2", 2, base_of(base, ImageFormat.RAW))
    told = subprocess.run(
        ["qemu-img", "info", "-U", "--output=json", "--backing-chain", str(images / "web.qcow2")],
        capture_output=True,
        text=True,
        check=True,
    )
    chain = json.loads(told.stdout)
    assert [(one["filename"], one["format"]) for one in chain][1:] == [(str(base), "raw")]
    assert str(secret) not in told.stdout


def test_several_runs_at_once_share_a_base_outside_of_any_pool(libvirtd: LocalLibvirtd, elsewhere: Path) -> None:
    base = elsewhere / "shared.qcow2"
    make_image(base)

    def overlay(number: int) -> str | None:
        with Hypervisor(libvirtd.uri, host="gpu1") as own:
            storage = Storage(own)
            name = f"at-once-{number}.qcow2"
            backing = storage.create_overlay("default", name, 1, base_of(base)).backing_path
            storage.delete_volume("default", name)
            return backing

    with ThreadPoolExecutor(max_workers=6) as threads:
        assert set(threads.map(overlay, range(6))) == {str(base)}


def test_a_base_larger_than_the_disk_is_refused(storage: Storage) -> None:
    with pytest.raises(VolumeRejected, match=r"big\.qcow2 is 5 MiB, larger than the disk of 4 MiB") as caught:
        storage.create_overlay("default", "web.qcow2", 4, base_of("/srv/big.qcow2", size_mib=5))
    assert caught.value.hint == "ask for a disk of 5 MiB or more"
    with pytest.raises(VolumeRejected, match="larger than the disk"):
        storage.check_disk("default", 4, base_of("/srv/big.qcow2", size_mib=5))


@pytest.mark.parametrize("refreshed", [True, False])
def test_a_file_that_exists_is_neither_taken_over_nor_written(
    hypervisor: Hypervisor, storage: Storage, images: Path, *, refreshed: bool
) -> None:
    make_image(images / "base.qcow2")
    data = b"the data of somebody else " * 40_000
    for name in ("web.qcow2", "seed.iso"):
        (images / name).write_bytes(data)
    make_image(images / "equal.qcow2", size_mib=2)
    (images / "same-seed.iso").write_bytes(b"seed")
    before = {path.name: path.read_bytes() for path in images.iterdir()}
    if refreshed:
        hypervisor.connection.storagePoolLookupByName("default").refresh(0)
    creations: tuple[Callable[[], object], ...] = (
        lambda: storage.create_disk("default", "web.qcow2", 2),
        lambda: storage.create_disk("default", "equal.qcow2", 2),
        lambda: storage.create_overlay("default", "web.qcow2", 2, base_of("/var/lib/libvirt/images/base.qcow2")),
        lambda: storage.create_image("default", "seed.iso", b"seed"),
        lambda: storage.create_image("default", "same-seed.iso", b"seed"),
    )
    for create in creations:
        with pytest.raises(VolumeExists, match="that vgpuctl did not make") as caught:
            create()
        assert "it stays as it is" in (caught.value.hint or "")
        assert {path.name: path.read_bytes() for path in images.iterdir()} == before


def test_libvirt_itself_refuses_a_file_that_its_pool_does_not_know(hypervisor: Hypervisor, images: Path) -> None:
    """Our own look is not what protects a file that somebody creates right after it."""
    pool = hypervisor.connection.storagePoolLookupByName("default")
    (images / "web.qcow2").write_bytes(b"theirs")
    for image_format in ("qcow2", "raw"):
        xml = render_template("volume.xml.j2", name="web.qcow2", format=image_format, size=MIB, backing=None)
        with pytest.raises(libvirt.libvirtError) as caught:
            pool.createXML(xml, 0)
        assert is_refused_as_existing(caught.value.get_error_message())
    assert (images / "web.qcow2").read_bytes() == b"theirs"
    (images / "web.qcow2").unlink()


@pytest.mark.parametrize("size", [0, 1, 4096, 700_001])
def test_an_image_arrives_byte_for_byte(storage: Storage, images: Path, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    made = storage.create_image("default", "seed.iso", data[:size])
    assert (images / "seed.iso").read_bytes() == data[:size]
    found = storage.find_volume("default", "seed.iso")
    assert found is not None
    assert (found.capacity_bytes, found.key) == (size, made.key)


def test_a_pool_that_is_not_there_or_not_active_is_not_taken_for_an_empty_one(
    hypervisor: Hypervisor, storage: Storage
) -> None:
    storage.create_disk("default", "web.qcow2", 1)
    with pytest.raises(VolumeRejected, match="no storage pool 'gone'"):
        storage.find_volume("gone", "web.qcow2")
    hypervisor.connection.storagePoolLookupByName("default").destroy()
    with pytest.raises(VolumeRejected, match="is not active"):
        storage.find_volume("default", "web.qcow2")
    storage.ensure_pool("default")


def test_deleting_what_is_gone_changes_nothing(storage: Storage, images: Path) -> None:
    storage.create_disk("default", "web.qcow2", 1)
    assert storage.delete_volume("default", "web.qcow2")
    assert not (images / "web.qcow2").exists()
    assert not storage.delete_volume("default", "web.qcow2")
    assert not storage.delete_volume("gone", "web.qcow2")
    storage.create_disk("default", "web.qcow2", 1)
    (images / "web.qcow2").unlink()
    assert not storage.delete_volume("default", "web.qcow2")


def test_a_full_pool_says_what_is_left(hypervisor: Hypervisor, storage: Storage, libvirtd: LocalLibvirtd) -> None:
    xml = render_template("pool.xml.j2", name="full", path=str(libvirtd.full_folder))
    handle = hypervisor.connection.storagePoolCreateXML(xml, 0)
    with pytest.raises(VolumeRejected, match="No space left on device") as caught:
        storage.create_image("full", "seed.iso", b"x" * 2 * MIB)
    assert caught.value.context == (f"pool full at {libvirtd.full_folder}: 1 MiB of 1 MiB left",)
    assert "virsh pool-info" in (caught.value.hint or "")
    assert storage.volumes("full") == []
    handle.destroy()


def test_the_test_driver_keeps_volumes_too() -> None:
    with Hypervisor("test:///default", host="gpu1") as hypervisor:
        storage = Storage(hypervisor)
        storage.create_disk("default-pool", "base.qcow2", 1)
        with pytest.raises(VolumeExists):
            storage.create_disk("default-pool", "base.qcow2", 1)
        assert storage.delete_volume("default-pool", "base.qcow2")
