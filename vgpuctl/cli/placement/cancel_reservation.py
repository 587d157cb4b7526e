# SPDX-License-Identifier: Apache-2.0
"""cancel-reservation: what was promised is free again."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, say


@click.command("cancel-reservation")
@click.argument("name")
@options.tenant_of("Tenant of the reservation.")
@options.database
@options.as_json
def command(name: str, tenant: str, database: str | None, as_json: bool) -> None:
    """Cancel a reservation with all its repetitions; a VM that uses it runs on until its time is over."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.placement.cancel_reservation import cancel_reservation

    with services(database=database) as opened:
        gone = cancel_reservation(opened, tenant, name)
    if as_json:
        print_json({"cancelled": gone})
    else:
        say(f"reservation {name}: cancelled")
