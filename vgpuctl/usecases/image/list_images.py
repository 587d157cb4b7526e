# SPDX-License-Identifier: Apache-2.0
"""list-images: the operator's catalogue of images."""

from dataclasses import dataclass

from vgpuctl.model.image import Image, ImageCopy
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class ListedImage:
    """An image, and the hosts where its copy was verified."""

    image: Image
    copies: tuple[ImageCopy, ...]


def list_images(services: Services) -> list[ListedImage]:
    """Every image by name, with its verified copies. No host is contacted."""
    with services.store.reading() as session:
        copies = session.image_copies()
        images = session.images()
    return [ListedImage(image, tuple(copy for copy in copies if copy.image == image.name)) for image in images]
