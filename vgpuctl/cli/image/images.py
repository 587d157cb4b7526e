# SPDX-License-Identifier: Apache-2.0
"""register-image, list-images, delete-image: the catalogue of images."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.lists.listing import Column, Listing
from vgpuctl.cli.options import options
from vgpuctl.errors import UsageError

if TYPE_CHECKING:
    from vgpuctl.model.image import Image
    from vgpuctl.usecases.found.deletion import Deletion
    from vgpuctl.usecases.image.images import ListedImage
    from vgpuctl.usecases.running.services import Services

_IMAGES: "StoredKind[Image]" = StoredKind("image", "list-images", "image")


@_IMAGES.changes(
    lambda image: f"registered, {image.location.shown}, sha256:{image.sha256}", where=options.one_host, is_new=True
)
@click.option("--path", metavar="PATH", help="Absolute path of the image, the same on every host that has it.")
@click.option("--volume", metavar="NAME", help="Volume of a libvirt storage pool, in place of --path.")
@click.option(
    "--storage-pool", "pool", default="default", show_default=True, metavar="NAME", help="The storage pool of --volume."
)
@click.option(
    "--format",
    "image_format",
    type=click.Choice(["qcow2", "raw"]),
    required=True,
    help="Format of the content; it is never guessed.",
)
@click.option(
    "--kind",
    type=click.Choice(["disk", "kernel", "initrd", "iso"]),
    default="disk",
    show_default=True,
    help="Use of the image: base of a disk, kernel, initrd, or medium to install from.",
)
@click.option("--checksum", metavar="sha256:HEX", help="SHA-256 of the whole file, as `sha256sum` prints it.")
@click.option("--host", metavar="NAME", help="Verify the copy of this host now; without --checksum, take its checksum.")
@click.option("--os", "os_name", metavar="TEXT", help="Operating system, for people: debian-12.")
@click.option("--guest-driver", metavar="VERSION", help="Version or branch of the NVIDIA driver in it: 580.105.06.")
def register_image(
    opened: "Services",
    name: str,
    path: str | None,
    volume: str | None,
    pool: str,
    image_format: str,
    kind: str,
    checksum: str | None,
    host: str | None,
    os_name: str | None,
    guest_driver: str | None,
) -> "tuple[Image, bool]":
    """Add a base image, kernel or initrd to the catalogue. VMs choose them from it by name.

    The same command again changes nothing; another place, format or checksum under this name is refused.
    Each host's copy is verified by its checksum when a VM there uses it for the first time, and again when it changed.
    """
    from vgpuctl.model.image import ImageFormat, ImageKind, ImageLocation, check_image_path, parse_checksum
    from vgpuctl.model.vm import check_name
    from vgpuctl.usecases.image.images import ImageRequest, register_image

    if (path is None) == (volume is None):
        raise UsageError("give either --path or --volume")
    location = ImageLocation(pool=pool, volume=volume) if path is None else ImageLocation(check_image_path(path))
    wanted = ImageRequest(
        check_name(name, what="image name"),
        ImageKind(kind),
        ImageFormat(image_format),
        location,
        None if checksum is None else parse_checksum(checksum),
        os_name,
        guest_driver,
    )
    return register_image(opened, wanted, host=host)


_LISTING: "Listing[ListedImage, ListedImage]" = Listing(
    columns=(
        Column("IMAGE", lambda one: one.image.name),
        Column("KIND", lambda one: one.image.kind),
        Column("FORMAT", lambda one: one.image.format, drops=3),
        Column("OS", lambda one: one.image.os, drops=2),
        Column("GUEST DRIVER", lambda one: one.image.guest_driver, drops=1),
        Column("VERIFIED ON", lambda one: tuple(copy.host for copy in one.copies) or None, drops=4),
        Column("PLACE", lambda one: one.image.location.shown, drops=5),
        Column("CHECKSUM", lambda one: f"sha256:{one.image.sha256}", is_wide=True),
    ),
    name=lambda one: one.image.name,
    json=lambda one: one,
    empty="no image yet: add one with `vgpuctl register-image`",
)


@_IMAGES.lists(_LISTING)
def list_images(opened: "Services") -> "Sequence[ListedImage]":
    """List the images that VMs can name, and the hosts with verified copies."""
    from vgpuctl.usecases.image.images import list_images

    return list_images(opened)


@_IMAGES.deletes(whose=" from the catalogue")
def delete_image() -> "Deletion[Image]":
    """Remove images from the catalogue; their files on the hosts stay. Refused while a VM uses one."""
    from vgpuctl.usecases.image.images import DELETION

    return DELETION
