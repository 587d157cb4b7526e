# SPDX-License-Identifier: Apache-2.0
"""delete-image: take an image out of the catalogue."""

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support.deletion import JsonDeletion, delete_one, deletion_options
from vgpuctl.cli.support.json_output import JsonOutput

if TYPE_CHECKING:
    from vgpuctl.model.image import Image


_JSON: "JsonOutput[JsonDeletion[Image]]" = JsonOutput()


@click.command("delete-image")
@deletion_options
def command(name: str, **how: Any) -> None:
    """Take an image out of the catalogue; its files on the hosts stay. Refused while a VM uses it."""
    from vgpuctl.usecases.image.delete_image import delete_image

    delete_one(
        partial(delete_image, name=name),
        question=f"Delete image {name} from the catalogue?",
        told=lambda image: f"image {name}: deleted from the catalogue; {image.location.shown} stays on the hosts",
        output=_JSON,
        **how,
    )
