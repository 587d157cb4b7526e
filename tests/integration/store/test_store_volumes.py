# SPDX-License-Identifier: Apache-2.0
"""Recorded volumes, recorded names, and how an older store gets them."""

import json
from dataclasses import replace

import pytest
from alembic import command
from sqlalchemy import create_engine, text

from tests.integration.store.samples import network, some_uuid, vm
from vgpuctl.errors import ConcurrentChange, NotFound
from vgpuctl.model.disk import DiskRequest
from vgpuctl.model.vm import CloudInit, Vm, VmRequest, VmState
from vgpuctl.model.volume import Volume, VolumeKind, VolumeState, wanted_volumes
from vgpuctl.store import upgrade
from vgpuctl.store.store import Store, open_store


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
        shown = {"key": "key", "path": "/fast/disk", "backing_path": "/fast/base"}
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


def _insert(connection: object, uuid: str, request: VmRequest, state: VmState, at: float) -> None:
    encoded: dict[str, object] = {
        "disk": None if request.disk is None else {"size_mib": 1, "base_image": None, "pool": request.disk.pool},
        "cloud_init": {"ssh_authorized_keys": [], "hostname": request.cloud_init.hostname},
        "domain": request.domain,
    }
    connection.execute(  # type: ignore[attr-defined]
        text(
            "INSERT INTO vms (uuid, tenant, name, host, state, request, request_version, created_at)"
            " VALUES (:uuid, :tenant, :name, 'gpu1', :state, :request, 7, :at)"
        ),
        {
            "uuid": uuid,
            "tenant": request.tenant,
            "name": request.name,
            "state": state.value,
            "request": json.dumps({"name": request.name, "tenant": request.tenant, **encoded}),
            "at": at,
        },
    )


def test_an_older_store_keeps_the_names_that_its_vms_have(url: str) -> None:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    disk, seed = DiskRequest(1, pool="fast"), CloudInit(hostname="h")
    with engine.begin() as connection:
        command.upgrade(upgrade.config(connection), "0009")
        for tenant in ("a", "a.b"):
            connection.execute(text("INSERT INTO tenants (name, created_at) VALUES (:name, 1)"), {"name": tenant})
        _insert(connection, "first", VmRequest("c", "a.b", disk=disk, cloud_init=seed), VmState.RUNNING, 1.0)
        _insert(connection, "same", VmRequest("b.c", "a", disk=disk), VmState.STOPPED, 2.0)
        _insert(connection, "half", VmRequest("half", "a", disk=disk), VmState.CREATING, 3.0)
        _insert(connection, "theirs", VmRequest("desk", "a", domain="desk-7"), VmState.RUNNING, 4.0)
        connection.execute(
            text(
                "INSERT INTO networks (id, tenant, name, backend, host, state, request, created_at) VALUES"
                " ('n', 'a.b', 'front', 'libvirt', 'gpu1', 'ready', :request, 1)"
            ),
            {"request": json.dumps({"name": "front", "tenant": "a.b", "cidr": "10.0.0.0/24"})},
        )
    engine.dispose()
    with open_store(url) as store, store.reading() as session:
        assert {one.uuid: one.domain_name for one in session.vms()} == {
            "first": "a.b.c",
            "same": "a.b.c",
            "half": "a.half",
            "theirs": "desk-7",
        }
        assert [one.host_name for one in session.networks()] == ["a.b.front"]
        made = VolumeState.MADE
        assert session.volumes() == [
            Volume("first", "a.b", "c", "gpu1", VolumeKind.SEED, "default", "a.b.c-seed.iso", made),
            Volume("first", "a.b", "c", "gpu1", VolumeKind.DISK, "fast", "a.b.c.qcow2", made),
        ]


def test_the_seed_of_a_vm_that_was_installed_unattended_becomes_its_answers(url: str) -> None:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        command.upgrade(upgrade.config(connection), "0022")
        row = {"host": "gpu1", "state": "stopped", "request_version": 9, "created_at": 0.0}
        connection.execute(text("INSERT INTO tenants (name, created_at) VALUES ('acme', 0)"))
        for name, install in (("first", '{"iso": "x", "unattended": true}'), ("second", '{"iso": "x"}')):
            connection.execute(
                text(
                    "INSERT INTO vms (uuid, tenant, name, host, state, request, request_version, created_at)"
                    " VALUES (:name, 'acme', :name, :host, :state, :request, :request_version, :created_at)"
                ),
                row | {"name": name, "request": f'{{"name": "{name}", "tenant": "acme", "install": {install}}}'},
            )
            connection.execute(
                text(
                    "INSERT INTO volumes (host, pool, name, vm_uuid, tenant, vm_name, kind, state, created_at)"
                    " VALUES ('gpu1', 'default', :file, :name, 'acme', :name, 'seed', 'made', 0)"
                ),
                {"file": f"{name}-seed.iso", "name": name},
            )
        command.upgrade(upgrade.config(connection), "head")
        kinds = connection.execute(text("SELECT vm_uuid, kind FROM volumes ORDER BY vm_uuid")).all()
    engine.dispose()
    assert [tuple(one) for one in kinds] == [("first", "answers"), ("second", "seed")]
