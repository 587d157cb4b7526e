# SPDX-License-Identifier: Apache-2.0
"""The catalogue of images in the store."""

from dataclasses import replace

import pytest

from vgpuctl.errors import ConcurrentChange, NotFound
from vgpuctl.model.image import Image, ImageCopy, ImageFormat, ImageKind, ImageLocation
from vgpuctl.store.store import Store

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
