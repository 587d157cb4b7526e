# SPDX-License-Identifier: Apache-2.0
"""The operator's catalogue of images, and the copies that were verified on hosts."""

from typing import TYPE_CHECKING

from vgpuctl.errors import NotFound
from vgpuctl.store.database import Row, given
from vgpuctl.store.rows import Rows

if TYPE_CHECKING:  # imported with the first row of it
    from vgpuctl.model.image import Image, ImageCopy


class ImageRows(Rows):
    """Add, find and delete images and their verified copies."""

    def add_image(self, image: "Image") -> None:
        """Add an image. Raises ConcurrentChange when one of this name is there."""
        self._insert(
            "images",
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
            conflict=f"another run has just registered image {image.name}",
        )

    def find_image(self, name: str) -> "Image | None":
        """One image, None for an unknown name."""
        for row in self._find("images", name=name):
            return _image(row)
        return None

    def image(self, name: str) -> "Image":
        """One image. Raises NotFound with names that are near."""
        found = self.find_image(name)
        if found is None:
            import difflib

            near = difflib.get_close_matches(name, [image.name for image in self.images()], n=3)
            raise NotFound(
                f"there is no image {name!a}",
                hint=f"did you mean {near[0]}?" if near else "see `vgpuctl list-images`",
            )
        return found

    def images(self) -> "list[Image]":
        """Every image, by name."""
        return sorted(map(_image, self._find("images")), key=lambda image: image.name)

    def delete_image(self, name: str) -> bool:
        """Delete an image and what was noted of its copies; no host is changed. Returns False when it was gone."""
        self._delete("image_copies", image=name)
        return self._delete("images", name=name) == 1

    def image_copies(self, image: str | None = None) -> "list[ImageCopy]":
        """The verified copies of one image or of all, by image and host."""
        rows = self._find("image_copies", **given(image=image))
        return sorted(map(_copy, rows), key=lambda copy: (copy.image, copy.host))

    def save_image_copy(self, copy: "ImageCopy") -> None:
        """Note that a copy was verified, in place of what was noted of this image on this host before."""
        self._put(
            "image_copies",
            {"image": copy.image, "host": copy.host},
            real_path=copy.real_path,
            size_bytes=copy.size_bytes,
            # Both are unsigned 64-bit numbers, which neither database has.
            device=str(copy.device),
            inode=str(copy.inode),
            changed_ns=copy.changed_ns,
            verified_at=copy.verified_at,
        )


def _image(row: Row) -> "Image":
    from vgpuctl.model.image import Image, ImageFormat, ImageKind, ImageLocation

    location = ImageLocation(row.path, row.pool, row.volume)
    return Image(row.name, ImageKind(row.kind), ImageFormat(row.format), row.sha256, location, row.os, row.guest_driver)


def _copy(row: Row) -> "ImageCopy":
    from vgpuctl.model.image import ImageCopy

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
