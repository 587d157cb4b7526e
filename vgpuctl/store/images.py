# SPDX-License-Identifier: Apache-2.0
"""The operator's catalogue of images, and the copies that were verified on hosts."""

import difflib
from typing import Any

from sqlalchemy import Row, delete, insert, select

from vgpuctl.errors import NotFound
from vgpuctl.model.image import Image, ImageCopy, ImageFormat, ImageKind, ImageLocation
from vgpuctl.store import tables
from vgpuctl.store.rows import Rows

_IMAGES, _COPIES = tables.images, tables.image_copies


class ImageRows(Rows):
    """Add, find and delete images and their verified copies."""

    def add_image(self, image: Image) -> None:
        """Add an image. Raises ConcurrentChange when one of this name is there."""
        self._write(
            insert(_IMAGES).values(
                name=image.name,
                kind=image.kind.value,
                format=image.format.value,
                sha256=image.sha256,
                path=image.location.path,
                pool=image.location.pool,
                volume=image.location.volume,
                os=image.os,
                guest_driver=image.guest_driver,
                created_at=self._clock(),
            ),
            conflict=f"another run has just registered image {image.name}",
        )

    def find_image(self, name: str) -> Image | None:
        """One image, None for an unknown name."""
        for row in self._read(select(_IMAGES).where(_IMAGES.c.name == name)):
            return _image(row)
        return None

    def image(self, name: str) -> Image:
        """One image. Raises NotFound with names that are near."""
        found = self.find_image(name)
        if found is None:
            near = difflib.get_close_matches(name, [image.name for image in self.images()], n=3)
            raise NotFound(
                f"there is no image {name!a}",
                hint=f"did you mean {near[0]}?" if near else "see `vgpuctl list-images`",
            )
        return found

    def images(self) -> list[Image]:
        """Every image, by name."""
        return sorted((_image(row) for row in self._read(select(_IMAGES))), key=lambda image: image.name)

    def delete_image(self, name: str) -> bool:
        """Delete an image and what was noted of its copies; no host is changed. Returns False when it was gone."""
        self._write(delete(_COPIES).where(_COPIES.c.image == name))
        return self._write(delete(_IMAGES).where(_IMAGES.c.name == name)).rowcount == 1

    def image_copies(self, image: str | None = None) -> list[ImageCopy]:
        """The verified copies of one image or of all, by image and host."""
        query = select(_COPIES) if image is None else select(_COPIES).where(_COPIES.c.image == image)
        return sorted((_copy(row) for row in self._read(query)), key=lambda copy: (copy.image, copy.host))

    def save_image_copy(self, copy: ImageCopy) -> None:
        """Note that a copy was verified, in place of what was noted of this image on this host before."""
        self._write(delete(_COPIES).where(_COPIES.c.image == copy.image, _COPIES.c.host == copy.host))
        self._write(
            insert(_COPIES).values(
                image=copy.image,
                host=copy.host,
                real_path=copy.real_path,
                size_bytes=copy.size_bytes,
                # Both are unsigned 64-bit numbers, which neither database has.
                device=str(copy.device),
                inode=str(copy.inode),
                changed_ns=copy.changed_ns,
                verified_at=copy.verified_at,
            )
        )


def _image(row: Row[Any]) -> Image:
    location = ImageLocation(row.path, row.pool, row.volume)
    return Image(row.name, ImageKind(row.kind), ImageFormat(row.format), row.sha256, location, row.os, row.guest_driver)


def _copy(row: Row[Any]) -> ImageCopy:
    return ImageCopy(
        row.image,
        row.host,
        row.real_path,
        row.size_bytes,
        int(row.device),
        int(row.inode),
        row.changed_ns,
        row.verified_at,
    )
