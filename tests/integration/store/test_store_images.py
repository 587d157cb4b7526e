# SPDX-License-Identifier: Apache-2.0
"""The catalogue of images in the store, and how requests of an older store get there."""

import json
from dataclasses import replace

import pytest
from sqlalchemy import create_engine, text

from tests.integration.store.samples import some_uuid
from vgpuctl.errors import ConcurrentChange, NotFound
from vgpuctl.model.image import Image, ImageCopy, ImageFormat, ImageKind, ImageLocation
from vgpuctl.store import upgrade
from vgpuctl.store.store import Store, open_store

DEBIAN = Image("debian-12", ImageKind.DISK, ImageFormat.QCOW2, "a" * 64, ImageLocation("/srv/debian.qcow2"), "debian")
LINUX = Image("linux", ImageKind.KERNEL, ImageFormat.RAW, "b" * 64, ImageLocation(pool="default", volume="vmlinuz"))
COPY = ImageCopy("debian-12", "gpu1", "/srv/debian.qcow2", 7, 2**64 - 1, 2**64 - 2, 1_700_000_000_000_000_001, 5.5)


def test_images_and_their_copies_come_back_as_they_went(store: Store) -> None:
    with store.transaction() as session:
        session.add_image(LINUX)
        session.add_image(DEBIAN)
        session.save_image_copy(replace(COPY, inode=1))
        session.save_image_copy(COPY)
        session.save_image_copy(replace(COPY, host="gpu2"))
    with store.reading() as session:
        assert session.images() == [DEBIAN, LINUX]
        assert session.image("linux") == LINUX
        assert session.image_copies() == [COPY, replace(COPY, host="gpu2")]
        assert session.image_copies("linux") == []
        with pytest.raises(NotFound) as caught:
            session.image("debian-13")
        assert caught.value.hint == "did you mean debian-12?"
    with pytest.raises(ConcurrentChange), store.transaction() as session:
        session.add_image(DEBIAN)
    with store.transaction() as session:
        assert session.delete_image("debian-12")
        assert not session.delete_image("debian-12")
        assert session.image_copies() == []


def test_paths_in_an_older_store_are_no_names_of_images(url: str) -> None:
    from alembic import command

    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    older = json.dumps(
        {
            "name": "web-1",
            "tenant": "acme",
            "disk": {"size_mib": 1024, "base_image": "debian-12", "pool": "default"},
            "direct_kernel": {"kernel": "/boot/vmlinuz", "initrd": None, "command_line": ""},
        }
    )
    with engine.begin() as connection:
        command.upgrade(upgrade.config(connection), "0007")
        connection.execute(text("INSERT INTO tenants (name, created_at) VALUES ('acme', 1)"))
        connection.execute(
            text(
                "INSERT INTO vms (uuid, tenant, name, host, state, request, request_version, created_at)"
                " VALUES (:uuid, 'acme', 'web-1', 'gpu1', 'running', :request, 7, 1)"
            ),
            {"uuid": some_uuid(), "request": older},
        )
        connection.execute(
            text(
                "INSERT INTO queue (kind, tenant, name, request, request_version, queued_at)"
                " VALUES ('gang', 'acme', 'web-2', :request, 7, 1)"
            ),
            {"request": f"[{older.replace('web-1', 'web-2')}]"},
        )
    engine.dispose()
    with open_store(url) as store, store.reading() as session:
        vm = session.vm("acme", "web-1")
        (entry,) = session.queue()
    assert vm is not None
    for request in (vm.request, *entry.requests):
        assert request.disk is not None and request.direct_kernel is not None
        assert request.disk.base_image == "unregistered:debian-12"
        assert (request.direct_kernel.kernel, request.direct_kernel.initrd) == ("unregistered:/boot/vmlinuz", None)
