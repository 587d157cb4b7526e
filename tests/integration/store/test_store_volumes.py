# SPDX-License-Identifier: Apache-2.0
"""Recorded volumes and recorded names."""

from dataclasses import replace
from typing import Any

import pytest

from tests.integration.store.samples import network, some_uuid, vm
from vgpuctl.errors import ConcurrentChange, NotFound
from vgpuctl.model.disk import DiskRequest
from vgpuctl.model.vm import CloudInit, Vm
from vgpuctl.model.volume import Volume, VolumeKind, VolumeState, wanted_volumes
from vgpuctl.store.store import Store


def _vm() -> Vm:
    made = vm()
    return replace(
        made, request=replace(made.request, disk=DiskRequest(64, pool="fast"), cloud_init=CloudInit(hostname="web-1"))
    )


def test_a_volume_is_intended_made_and_forgotten(store: Store) -> None:
    owner = _vm()
    disk, seed = wanted_volumes(owner)
    assert (disk.name, disk.pool, disk.capacity_bytes) == (f"{owner.uuid}.qcow2", "fast", 64 * 2**20)
    assert (seed.name, seed.pool) == (f"{owner.uuid}-seed.iso", "default")
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_vm(owner)
        for volume in (disk, seed):
            session.intend_volume(volume)
        assert session.volumes(vm_uuid=owner.uuid) == [seed, disk]
        shown: dict[str, Any] = {"key": "key", "path": "/fast/disk", "backing_path": "/fast/base"}
        session.set_volume_made(disk, **shown, format_name="qcow2")
        made = replace(disk, state=VolumeState.MADE, **shown, format="qcow2")
        assert session.volumes(tenant="acme") == session.volumes(host="gpu1") == [seed, made]
        assert session.volumes(host="gpu2") == session.volumes(tenant="other") == []
        session.delete_vm(owner.uuid)
        assert len(session.volumes()) == 2, "a volume outlives its VM until it is deleted"
        assert session.forget_volume(disk)
        assert not session.forget_volume(disk)
        with pytest.raises(NotFound):
            session.set_volume_made(disk, **shown, format_name="qcow2")


def test_a_name_is_recorded_for_one_vm(store: Store) -> None:
    owner = _vm()
    disk, _seed = wanted_volumes(owner)
    with store.transaction() as session:
        session.add_tenant("acme")
        session.intend_volume(disk)
    with pytest.raises(ConcurrentChange, match="recorded for a VM already"), store.transaction() as session:
        session.intend_volume(replace(disk, vm_uuid=some_uuid()))


def test_a_data_disk_has_its_name_alone_within_its_tenant(store: Store) -> None:
    """Two runs at once have both found the name free."""
    first, second = _vm(), replace(_vm(), uuid=some_uuid(), host="gpu2")
    disks = [
        Volume(one.uuid, tenant, "web", one.host, VolumeKind.DATA, "fast", f"{one.uuid}-{tenant}", label="data")
        for one, tenant in ((first, "acme"), (second, "acme"), (second, "other"))
    ]
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_tenant("other")
        session.intend_volume(disks[0])
        session.intend_volume(replace(disks[0], host="gpu2"))  # the copy of a VM that moves
        session.intend_volume(disks[2])
    for owner in ("VM web has it, on gpu1", "no VM has it, on gpu1"):
        with pytest.raises(ConcurrentChange, match=owner), store.transaction() as session:
            session.intend_volume(disks[1])
        with store.transaction() as session:
            session.forget_volume(replace(disks[0], host="gpu2"))
            if owner.startswith("VM"):
                session.keep_volume(disks[0])


def test_recorded_names_of_hosts_come_back(store: Store) -> None:
    old = replace(vm(name="c", tenant="a.b"), domain="a.b.c")
    with store.transaction() as session:
        session.add_tenant("a.b")
        session.add_vm(old)
        session.add_vm(vm(name="d", tenant="a.b"))
        session.add_network(replace(network("a.b"), known_as="a.b.front"))
        assert [one.domain_name for one in session.vms()] == ["a.b.c", "a..b.d"]
        assert session.vm("a.b", "c") == old
        assert [one.host_name for one in session.networks()] == ["a.b.front"]
