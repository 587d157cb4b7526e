# SPDX-License-Identifier: Apache-2.0
"""delete-image: take an image out of the catalogue."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import confirm, print_json, say


@click.command("delete-image")
@click.argument("name")
@options.yes
@options.database
@options.as_json
def command(name: str, yes: bool, database: str | None, as_json: bool) -> None:
    """Take an image out of the catalogue; its files on the hosts stay. Refused while a VM uses it."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.image.delete_image import delete_image

    if not yes:
        confirm(f"Delete image {name} from the catalogue?")
    with services(database=database) as opened:
        image = delete_image(opened, name)
    if as_json:
        print_json({"deleted": image})
    else:
        say(f"image {name}: deleted from the catalogue; {image.location.shown} stays on the hosts")
