# SPDX-License-Identifier: Apache-2.0
"""Volumes of a VM that moves, between two real libvirtds: copied byte for byte, or proven to be shared."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.libvirt.test_storage import make_image
from tests.libvirtd_fixture import LocalLibvirtd
from vgpuctl.errors import StateError, VolumeExists, VolumeRejected
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.image import BaseImage, ImageFormat
from vgpuctl.usecases.vm.move_volumes import prove_shared

MIB = 2**20
POOL = "<pool type='dir'><name>{}</name><target><path>{}</path></target></pool>"


@pytest.fixture
def second(libvirtd: LocalLibvirtd) -> Iterator[LocalLibvirtd]:
    """A second host beside the session's."""
    folder = Path(tempfile.mkdtemp(prefix="vgpuctl-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with LocalLibvirtd(folder) as daemon:
            yield daemon
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def other(second: LocalLibvirtd) -> Iterator[Hypervisor]:
    with Hypervisor(second.uri, host="gpu2") as opened:
        yield opened


def define_pool(hypervisor: Hypervisor, name: str, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    hypervisor.connection.storagePoolDefineXML(POOL.format(name, folder), 0).create(0)


def forget_pool(hypervisor: Hypervisor, name: str) -> None:
    pool = hypervisor.connection.storagePoolLookupByName(name)
    pool.destroy()
    pool.undefine()


def test_an_overlay_arrives_byte_for_byte(
    storage: Storage, other: Hypervisor, libvirtd: LocalLibvirtd, second: LocalLibvirtd
) -> None:
    there = Storage(other)
    there.ensure_pool("default")
    here, far = (one.folder / "var/lib/libvirt/images" for one in (libvirtd, second))
    make_image(here / "base.img")
    base = BaseImage("/var/lib/libvirt/images/base.img", ImageFormat.QCOW2, MIB)
    overlay = storage.create_overlay("default", "vm.qcow2", 8, base)
    with (here / "vm.qcow2").open("ab") as file:
        file.write(b"the guest's data" * MIB)
    copied = there.copy_volume(storage, overlay)
    assert (far / "vm.qcow2").read_bytes() == (here / "vm.qcow2").read_bytes()
    assert (copied.format, copied.capacity_bytes) == ("qcow2", 8 * MIB)
    assert copied.backing_path == base.path
    with pytest.raises(VolumeExists):
        there.copy_volume(storage, overlay)


def test_a_copy_that_breaks_off_is_not_left(
    storage: Storage, other: Hypervisor, libvirtd: LocalLibvirtd, second: LocalLibvirtd
) -> None:
    there = Storage(other)
    there.ensure_pool("default")
    fact = storage.create_image("default", "vm.iso", b"x" * MIB)
    storage.delete_volume("default", "vm.iso")
    with pytest.raises(VolumeRejected, match="has no volume"):
        there.copy_volume(storage, fact)
    assert list((second.folder / "var/lib/libvirt/images").iterdir()) == []


def test_pools_of_one_name_are_shared_only_when_both_hosts_see_the_same_volumes(
    hypervisor: Hypervisor, other: Hypervisor, tmp_path: Path
) -> None:
    define_pool(hypervisor, "same", tmp_path / "same")
    define_pool(other, "same", tmp_path / "same")
    define_pool(hypervisor, "apart", tmp_path / "one")
    define_pool(other, "apart", tmp_path / "two")
    here, there = Storage(hypervisor), Storage(other)
    try:
        prove_shared(here, there, "same")
        with pytest.raises(StateError, match="is another pool"):
            prove_shared(here, there, "apart")
        assert [list((tmp_path / name).iterdir()) for name in ("same", "one", "two")] == [[], [], []]
    finally:
        for name in ("same", "apart"):
            forget_pool(hypervisor, name)
