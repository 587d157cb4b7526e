# SPDX-License-Identifier: Apache-2.0
"""cancel-reservation: what was promised is free again."""

from typing import TYPE_CHECKING, TypedDict

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.output import confirm, say

if TYPE_CHECKING:
    from vgpuctl.model.reservation import Reservation


class JsonCancelled(TypedDict):
    """cancelled: the reservation as it was."""

    cancelled: "Reservation"


_JSON: "JsonOutput[JsonCancelled]" = JsonOutput()


@click.command("cancel-reservation")
@click.argument("name")
@options.tenant_of("Tenant of the reservation.")
@options.yes
@options.database
@options.as_json
def command(name: str, tenant: str, yes: bool, database: str | None, as_json: bool) -> None:
    """Cancel a reservation with all its repetitions; a VM that uses it runs on until its time is over."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.placement.cancel_reservation import cancel_reservation

    if not yes:
        confirm(f"Cancel reservation {name} of tenant {tenant} with all its repetitions?")
    with services(database=database) as opened:
        gone = cancel_reservation(opened, tenant, name)
    if as_json:
        _JSON.print({"cancelled": gone})
    else:
        say(f"reservation {name}: cancelled")
