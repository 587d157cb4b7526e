# SPDX-License-Identifier: Apache-2.0
"""delete-licence-pool: no longer count these licences."""

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support.deletion import JsonDeletion, delete_one, deletion_options
from vgpuctl.cli.support.json_output import JsonOutput

if TYPE_CHECKING:
    from vgpuctl.model.licence import LicencePool


_JSON: "JsonOutput[JsonDeletion[LicencePool]]" = JsonOutput()


@click.command("delete-licence-pool")
@deletion_options
def command(name: str, **how: Any) -> None:
    """Delete a pool of vGPU licences with its token. VMs that hold seats of it run on."""
    from vgpuctl.usecases.licence.delete_licence_pool import delete_licence_pool

    delete_one(
        partial(delete_licence_pool, name=name),
        question=f"Delete licence pool {name} with its token?",
        told=lambda _: f"licence pool {name}: deleted",
        output=_JSON,
        **how,
    )
