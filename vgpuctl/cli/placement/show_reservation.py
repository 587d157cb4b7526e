# SPDX-License-Identifier: Apache-2.0
"""show-reservation: one reservation."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.labelled import print_labelled

if TYPE_CHECKING:
    from vgpuctl.usecases.placement.show_reservation import ShownReservation

_JSON: "JsonOutput[ShownReservation]" = JsonOutput()


@click.command("show-reservation")
@click.argument("name")
@options.tenant
@options.database
@options.as_json
def command(name: str, tenant: str, database: str | None, as_json: bool) -> None:
    """Show one reservation: its tenant, GPU shares, host, time, and the VM that uses it. No host is contacted."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.placement.show_reservation import show_reservation

    with services(database=database) as opened:
        shown = show_reservation(opened, tenant, name)
    if as_json:
        _JSON.print(shown)
    else:
        _print(shown)


def _print(shown: "ShownReservation") -> None:
    from vgpuctl.model.times import format_duration, format_time, format_time_to_second

    one = shown.reservation
    print_labelled("name", [f"{one.tenant}/{one.name}, {shown.state}"])
    print_labelled("GPU", [", ".join(gpu.text for gpu in one.gpus)])
    print_labelled(
        "held on", [f"{one.host}: {each.profile} ({each.sharing}) on {each.function}" for each in one.shares]
    )
    begin, end = shown.window or (one.begin, one.end)
    print_labelled("from", [f"{format_time(begin)} UTC"])
    print_labelled("until", [f"{format_time(end)} UTC"])
    if one.every_s is not None:
        print_labelled("every", [f"{format_duration(one.every_s)} since {format_time(one.begin)} UTC"])
    user = shown.used_by
    print_labelled("used by", ["nobody" if user is None else f"{user.name}, {user.state} on {user.host}"])
    print_labelled("event", [f"{format_time_to_second(each.at)} {each.kind} by {each.who}" for each in shown.events])
