# SPDX-License-Identifier: Apache-2.0
"""list-images: the catalogue of images."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table


@click.command("list-images")
@options.database
@options.as_json
def command(database: str | None, as_json: bool) -> None:
    """List the images that VMs can name, and the hosts where their copies were verified."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.image.list_images import list_images

    with services(database=database) as opened:
        listed = list_images(opened)
    if as_json:
        print_json(listed)
        return
    print_table(
        ["IMAGE", "KIND", "FORMAT", "OS", "GUEST DRIVER", "PLACE", "CHECKSUM", "VERIFIED ON"],
        [
            (
                one.image.name,
                one.image.kind,
                one.image.format,
                one.image.os,
                one.image.guest_driver,
                one.image.location.shown,
                f"sha256:{one.image.sha256[:12]}…",
                ", ".join(copy.host for copy in one.copies) or "-",
            )
            for one in listed
        ],
        empty="no image yet: add one with `vgpuctl register-image`",
    )
