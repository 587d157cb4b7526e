# SPDX-License-Identifier: Apache-2.0
"""list-images: the catalogue of images."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.listing import Column, Listing, ListOutput

if TYPE_CHECKING:
    from vgpuctl.usecases.image.list_images import ListedImage

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


@click.command("list-images")
@options.database
@_LISTING.options
def command(database: str | None, output: ListOutput) -> None:
    """List the images that VMs can name, and the hosts where their copies were verified."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.image.list_images import list_images

    with services(database=database) as opened:
        _LISTING.show(output, lambda: list_images(opened))
