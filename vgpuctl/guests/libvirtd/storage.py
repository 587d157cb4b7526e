# SPDX-License-Identifier: Apache-2.0
"""A host's storage through libvirt's storage API alone: pools, disks and seed images."""

import contextlib
import time
import uuid
from typing import Any

from vgpuctl.errors import VolumeExists, VolumeRejected
from vgpuctl.guests.facts.domain_facts import DiskSource
from vgpuctl.guests.facts.storage_facts import (
    QCOW2_HEADER_BYTES,
    PoolFact,
    VolumeFact,
    is_refused_as_existing,
    pool_fact,
    qcow2_l1_table,
    volume_fact,
)
from vgpuctl.guests.libvirt_errors import answer_of, error_code, libvirt_module, translate, translated
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.templating import render_template
from vgpuctl.model.image import BaseImage
from vgpuctl.model.units import MIB, format_mib

DEFAULT_POOL = "default"
DEFAULT_POOL_PATH = "/var/lib/libvirt/images"
_CHUNK_BYTES = 256 * 1024
_POLL_S = 0.2
_REFRESH_LIMIT_S = 2.0


class Storage:
    """The storage of one host, over the hypervisor's connection. `default_path`: where a missing default pool goes."""

    def __init__(self, hypervisor: Hypervisor, *, default_path: str = DEFAULT_POOL_PATH) -> None:
        self._hypervisor = hypervisor
        self._default_path = default_path

    def pools(self) -> list[PoolFact]:
        """Read all pools, by name."""
        with translated(f"list the storage pools on {self._host}", VolumeRejected):
            facts = [pool_fact(pool) for pool in self._connection.listAllStoragePools(0)]
        return sorted(facts, key=lambda pool: pool.name)

    def volumes(self, pool: str) -> list[VolumeFact]:
        """Read the volumes of a pool after a refresh, by name."""
        handle = self._pool(pool)
        with translated(f"list the volumes of pool {pool} on {self._host}", VolumeRejected):
            self._refresh(handle)
            return sorted(
                (volume_fact(volume, pool) for volume in handle.listAllVolumes(0)), key=lambda fact: fact.name
            )

    def ensure_pool(self, name: str) -> bool:
        """Make sure the pool is active; True when something had to be done.

        Only `default` is defined (a folder), built and started when missing: any other pool is the operator's.
        Raises VolumeRejected that lists the pools there are.
        """
        handle = self._find_pool(name)
        if handle is None and name != DEFAULT_POOL:
            raise VolumeRejected(
                f"{self._host} has no storage pool {name!r}",
                context=[f"{pool.name}: {pool.path or 'no path'}" for pool in self.pools()],
                hint="choose one of these pools, or define it with `virsh pool-define-as` on the host",
            )
        with translated(f"bring up the storage pool {name!r} on {self._host}", VolumeRejected):
            if handle is not None and handle.isActive():
                return False
            if handle is not None and name != DEFAULT_POOL:
                raise VolumeRejected(
                    f"the storage pool {name!r} on {self._host} is not active",
                    hint=f"run `virsh pool-start {name}` and `virsh pool-autostart {name}` on the host",
                )
            if handle is None:
                xml = render_template("pool.xml.j2", name=name, path=self._default_path)
                handle = self._connection.storagePoolDefineXML(xml, 0)
                handle.build(0)
                handle.setAutostart(1)
            handle.create(0)
        return True

    def create_disk(self, pool: str, volume: str, size_mib: int) -> VolumeFact:
        """Create an empty qcow2 volume of this size. Raises VolumeExists when there is one of this name."""
        return self._create_qcow2(pool, volume, size_mib, None)

    def create_overlay(self, pool: str, volume: str, size_mib: int, base: BaseImage) -> VolumeFact:
        """Create a qcow2 volume whose backing file is `base`, which stays untouched.

        The backing format is the declared one: nothing probes the content of the base. Raises VolumeRejected when the
        base is larger than the disk, VolumeExists when there is a volume of this name.
        """
        _refuse_larger(base, size_mib)
        return self._create_qcow2(pool, volume, size_mib, base)

    def check_disk(self, pool: str, size_mib: int, base: BaseImage | None) -> None:
        """Find out whether a disk could be made, without writing: its pool, and the size of its base image.

        Raises VolumeRejected.
        """
        if base is not None:
            _refuse_larger(base, size_mib)
        if self._find_pool(pool) is None and pool == DEFAULT_POOL:
            return
        with translated(f"read storage pool {pool} on {self._host}", VolumeRejected):
            pool_fact(self._pool(pool))

    def find_volume_path(self, pool: str, volume: str) -> str | None:
        """The path of a volume on the host, None when the pool or the volume is not there or not active."""
        found = self._find_volume(pool, volume)
        return None if found is None else volume_fact(found, pool).path

    def disk_path(self, source: DiskSource) -> str | None:
        """The path of a domain's disk on the host, None for a network disk or a volume that is gone."""
        if source.path is not None or source.pool is None or source.volume is None:
            return source.path
        return self.find_volume_path(source.pool, source.volume)

    def find_volume(self, pool: str, volume: str) -> VolumeFact | None:
        """Read a volume after a refresh; None when its pool has no such volume.

        Raises VolumeRejected when the pool is missing or not active: then nobody can say what it holds.
        """
        handle = self._pool(pool)
        with translated(f"find volume {volume} of pool {pool} on {self._host}", VolumeRejected):
            if not handle.isActive():
                raise VolumeRejected(
                    f"the storage pool {pool!r} on {self._host} is not active",
                    hint=f"run `virsh pool-start {pool}` on the host",
                )
            found = self._find_volume_in(handle, volume)
            return None if found is None else volume_fact(found, pool)

    def is_unused_disk(self, pool: str, volume: str) -> bool:
        """Answer whether no guest ever wrote to a qcow2 volume: its L1 table is empty.

        True also when libvirt's driver of the pool gives no content. Source: QEMU, docs/interop/qcow2.txt.
        """
        header = self._read(pool, volume, 0, QCOW2_HEADER_BYTES)
        if header is None:
            return True
        table = qcow2_l1_table(header)
        return table is not None and not any(self._read(pool, volume, *table) or b"")

    def has_text_or_nothing(self, pool: str, volume: str, text: str, size: int) -> bool:
        """Answer whether the first `size` bytes hold `text`, or zeros only, or cannot be had from libvirt's driver."""
        data = self._read(pool, volume, 0, size)
        return data is None or text.encode() in data or not any(data)

    def has_pool(self, pool: str) -> bool:
        """Answer whether the host has the pool, active or not."""
        return self._find_pool(pool) is not None

    def volume_path(self, pool: str, volume: str) -> str:
        """Give the path of a volume on the host, also before it is made."""
        handle = self._find_pool(pool)
        folder = self._default_path if handle is None else pool_fact(handle).path
        found = None if handle is None else self._find_volume(pool, volume)
        return f"{folder}/{volume}" if found is None else volume_fact(found, pool).path

    def create_image(self, pool: str, volume: str, data: bytes) -> VolumeFact:
        """Create a raw volume that holds these bytes. Raises VolumeExists when there is one of this name."""
        self.ensure_pool(pool)
        action = f"write volume {volume} of pool {pool} on {self._host}"
        handle = self._create(
            pool, volume, render_template("volume.xml.j2", name=volume, format="raw", size=len(data), backing=None)
        )
        try:
            with translated(action, VolumeRejected):
                stream = self._connection.newStream(0)
                handle.upload(stream, 0, len(data), 0)
                position = 0
                while position < len(data):
                    position += stream.send(data[position : position + _CHUNK_BYTES])
                stream.finish()
        except BaseException:
            # This call made it, and nobody may find it half written.
            self.delete_volume(pool, volume)
            raise
        return volume_fact(handle, pool)

    def shares_pool(self, other: "Storage", pool: str) -> bool:
        """Find out whether another host's pool of this name is the same storage: a volume made here shows there.

        It is a few bytes under a random name, and gone at the end.
        """
        name = f"vgpuctl-shared-{uuid.uuid4()}"
        self.create_image(pool, name, b"shared")
        try:
            return other.find_volume(pool, name) is not None
        finally:
            self.delete_volume(pool, name)

    def copy_volume(self, source: "Storage", volume: VolumeFact) -> VolumeFact:
        """Copy the bytes of another host's volume into the pool of the same name here, through this machine.

        An overlay stays one: its backing file must be at the same path here. Raises VolumeExists when there is a volume
        of this name, VolumeRejected when one side refuses or when the copy is not what was read; nothing is left then.
        """
        self.ensure_pool(volume.pool)
        xml = render_template(
            "volume.xml.j2", name=volume.name, format=volume.format, size=volume.capacity_bytes, backing=None
        )
        handle = self._create(volume.pool, volume.name, xml)
        try:
            with translated(f"copy volume {volume.name} from {source.host_name} to {self._host}", VolumeRejected):
                source.send_volume(volume, self._connection, handle)
            copied = self.find_volume(volume.pool, volume.name)
            if copied is None or copied.capacity_bytes != volume.capacity_bytes:
                raise VolumeRejected(
                    f"the copy of volume {volume.name} on {self._host} is not what {source.host_name} sent",
                    context=[f"sent: {volume}", f"read back: {copied}"],
                )
        except BaseException:
            # This call made it, and nobody may find it half written.
            self.delete_volume(volume.pool, volume.name)
            raise
        return copied

    def send_volume(self, volume: VolumeFact, connection: Any, target: Any) -> None:
        """Send the bytes of a volume to another host's empty one. Raises VolumeRejected, libvirtError."""
        handle = self._find_volume(volume.pool, volume.name)
        if handle is None:
            raise VolumeRejected(f"pool {volume.pool} on {self._host} has no volume {volume.name} any more")
        reading, writing = self._connection.newStream(0), connection.newStream(0)
        handle.download(reading, 0, 0, 0)
        target.upload(writing, 0, 0, 0)
        while chunk := reading.recv(_CHUNK_BYTES):
            sent = 0
            while sent < len(chunk):
                sent += writing.send(chunk[sent:])
        reading.finish()
        writing.finish()

    @property
    def host_name(self) -> str:
        """The host, for messages."""
        return self._host

    def delete_volume(self, pool: str, volume: str) -> bool:
        """Delete a volume; False when it, or its pool, is gone already."""
        library = libvirt_module()
        handle = self._find_volume(pool, volume)
        if handle is None:
            return False
        try:
            handle.delete(0)
        except library.libvirtError as refused:
            if error_code(refused) == library.VIR_ERR_NO_STORAGE_VOL:
                return False
            raise translate(
                refused, f"delete volume {volume} of pool {pool} on {self._host}", VolumeRejected
            ) from refused
        return True

    @property
    def _connection(self) -> Any:
        return self._hypervisor.connection

    @property
    def _host(self) -> str:
        return self._hypervisor.host

    def _create_qcow2(self, pool: str, volume: str, size_mib: int, base: BaseImage | None) -> VolumeFact:
        self.ensure_pool(pool)
        xml = render_template(
            "volume.xml.j2",
            name=volume,
            format="qcow2",
            size=size_mib * MIB,
            backing=base,
        )
        return volume_fact(self._create(pool, volume, xml), pool)

    def _create(self, pool: str, volume: str, xml: str) -> Any:
        """Create a volume and never touch one that is there: libvirt and its refreshed pool both refuse it."""
        library = libvirt_module()
        there = self._find_volume(pool, volume)
        if there is not None:
            raise self._exists(pool, volume, f"it is {there.path()}")
        try:
            return self._pool(pool).createXML(xml, 0)
        except library.libvirtError as refused:
            answer = answer_of(refused)
            if is_refused_as_existing(answer):
                raise self._exists(pool, volume, answer) from refused
            action = f"create volume {volume} in pool {pool} on {self._host}"
            error = translate(refused, action, VolumeRejected)
            with contextlib.suppress(library.libvirtError):
                fact = pool_fact(self._pool(pool))
                left = f"pool {pool} at {fact.path}: {format_mib(fact.available_bytes // MIB)} of "
                error.context = (left + f"{format_mib(fact.capacity_bytes // MIB)} left",)
            raise error from refused

    def _exists(self, pool: str, volume: str, answer: str) -> VolumeExists:
        return VolumeExists(
            f"pool {pool} on {self._host} has a volume {volume} that vgpuctl did not make: {answer}",
            hint=f"it stays as it is; look at it with `virsh vol-info {volume} --pool {pool}` on the host",
        )

    def _find_pool(self, name: str) -> Any:
        library = libvirt_module()
        try:
            return self._connection.storagePoolLookupByName(name)
        except library.libvirtError as refused:
            if error_code(refused) == library.VIR_ERR_NO_STORAGE_POOL:
                return None
            raise translate(refused, f"find the storage pool {name!r} on {self._host}", VolumeRejected) from refused

    def _pool(self, name: str) -> Any:
        handle = self._find_pool(name)
        if handle is None:
            raise VolumeRejected(f"{self._host} has no storage pool {name!r}")
        return handle

    def _find_volume(self, pool: str, volume: str) -> Any:
        handle = self._find_pool(pool)
        if handle is None:
            return None
        with translated(f"find volume {volume} of pool {pool} on {self._host}", VolumeRejected):
            return self._find_volume_in(handle, volume) if handle.isActive() else None

    def _find_volume_in(self, pool: Any, volume: str) -> Any:
        """Look after a refresh: a file that somebody else put there or took away shows only then."""
        library = libvirt_module()
        self._refresh(pool)
        try:
            return pool.storageVolLookupByName(volume)
        except library.libvirtError as refused:
            if error_code(refused) == library.VIR_ERR_NO_STORAGE_VOL:
                return None
            raise

    def _refresh(self, pool: Any) -> None:
        """Read the pool's folder again.

        libvirt refuses it while a volume of the pool is made or written. Waiting for that has a limit: an upload of
        a large image takes minutes, and the volumes libvirt knows of are then good enough.
        """
        library = libvirt_module()
        deadline = time.monotonic() + _REFRESH_LIMIT_S
        while True:
            try:
                pool.refresh(0)
            except library.libvirtError as refused:
                if "asynchronous jobs" not in answer_of(refused):
                    raise
                if time.monotonic() > deadline:
                    return
                time.sleep(_POLL_S)
            else:
                return

    def _read(self, pool: str, volume: str, offset: int, length: int) -> bytes | None:
        """Read bytes of a volume; None when it is gone, or when the driver of its pool gives no content."""
        library = libvirt_module()
        handle = self._find_volume(pool, volume)
        try:
            return None if handle is None else self._download(handle, length, offset=offset)
        except library.libvirtError as refused:
            if error_code(refused) == library.VIR_ERR_NO_SUPPORT:
                return None
            action = f"read volume {volume} of pool {pool} on {self._host}"
            raise translate(refused, action, VolumeRejected) from refused

    def _download(self, volume: Any, length: int, *, offset: int = 0) -> bytes:
        if length == 0:
            return b""
        stream = self._connection.newStream(0)
        volume.download(stream, offset, length, 0)
        received = bytearray()
        while chunk := stream.recv(_CHUNK_BYTES):
            received += chunk
        stream.finish()
        return bytes(received)


def _refuse_larger(base: BaseImage, size_mib: int) -> None:
    if base.virtual_bytes > size_mib * MIB:
        needed = -(-base.virtual_bytes // MIB)
        raise VolumeRejected(
            f"the base image {base.path} is {format_mib(needed)}, larger than the disk of {format_mib(size_mib)}",
            hint=f"ask for a disk of {needed} MiB or more",
        )
