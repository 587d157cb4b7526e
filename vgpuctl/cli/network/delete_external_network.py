# SPDX-License-Identifier: Apache-2.0
"""delete-external-network: delete a network that tenants' gateways lead to."""

from functools import partial
from typing import Any

import click

from vgpuctl.cli.support.deletion import JsonDeletion, delete_one, deletion_options
from vgpuctl.cli.support.json_output import JsonOutput

_JSON: "JsonOutput[JsonDeletion[bool]]" = JsonOutput()


@click.command("delete-external-network")
@deletion_options
def command(name: str, **how: Any) -> None:
    """Delete an external network. Refused while tenants hold addresses of it."""
    from vgpuctl.usecases.network.delete_external_network import delete_external_network

    delete_one(
        partial(delete_external_network, name=name),
        question=f"Delete external network {name}?",
        told=lambda deleted: f"{name}: {'deleted' if deleted else 'no such network, nothing to delete'}",
        output=_JSON,
        **how,
    )
