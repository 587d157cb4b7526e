# SPDX-License-Identifier: Apache-2.0
"""reserve: GPU shares for a time."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.output import say

if TYPE_CHECKING:
    from vgpuctl.model.reservation import Reservation


class JsonReservationChange(TypedDict):
    """A reservation; changed: false if it was there already."""

    changed: bool
    reservation: "Reservation"


_JSON: "JsonOutput[JsonReservationChange]" = JsonOutput()


@click.command("reserve")
@click.argument("name")
@options.tenant_of("Tenant of the reservation.")
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    required=True,
    metavar="WHAT",
    help="GPUs to reserve, as for create-vm: A40-8Q, 2*L40S-48Q; several times.",
)
@click.option(
    "--from", "begin", required=True, metavar="TIME", help="Begin, as 2026-11-01T14:00; UTC unless it names a zone."
)
@click.option("--until", required=True, metavar="TIME", help="End, in the form of --from.")
@click.option("--every", metavar="DURATION", help="Repeat after this period, from one begin to the next: 1d, 1w.")
@options.every_refusal
@options.many_hosts
@options.as_json
def command(
    name: str,
    tenant: str,
    gpus: tuple[str, ...],
    begin: str,
    until: str,
    every: str | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Reserve GPU shares for a tenant for a period, once or repeatedly.

    Before the period only VMs whose declared time (--for) ends earlier may use them. A reservation that does not fit
    is refused with the first time at which it fits. `create-vm --reservation NAME` uses the shares.

    A reservation holds GPUs only: CPUs and memory must be free on the host when it is used.
    """
    from vgpuctl.catalog import read_gpu_request
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.times import parse_duration, parse_time
    from vgpuctl.usecases.placement.reservations import describe
    from vgpuctl.usecases.placement.reserve import reserve

    with services(**where) as opened:
        made, changed = reserve(
            opened,
            tenant,
            name,
            tuple(map(read_gpu_request, gpus)),
            begin=parse_time(begin, what="--from"),
            end=parse_time(until, what="--until"),
            every_s=None if every is None else parse_duration(every, what="--every"),
        )
    if as_json:
        _JSON.print({"changed": changed, "reservation": made})
    else:
        say(f"reservation {name}: {describe(made) if changed else 'no change'} on {made.host}")
