# SPDX-License-Identifier: Apache-2.0
"""list-controllers: who watches which hosts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

import click

from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.cli.shown.state_colours import colour_of_state
from vgpuctl.model.times import format_time

if TYPE_CHECKING:
    from vgpuctl.model.backup import RestoreMark
    from vgpuctl.usecases.operate.list_controllers import ListedController


class JsonControllers(TypedDict):
    """unwatched: hosts that no running controller watches. restored: of a store that is not reconciled since."""

    controllers: "Sequence[ListedController]"
    unwatched: Sequence[str]
    restored: "RestoreMark | None"


_JSON: "JsonOutput[JsonControllers]" = JsonOutput()
_LISTING: "Listing[ListedController, ListedController]" = Listing(
    columns=(
        Column("MACHINE", lambda one: one.machine),
        Column("PID", lambda one: one.pid),
        Column("STATE", lambda one: one.state, colour=lambda one: colour_of_state(one.state) or "green"),
        Column("SINCE (UTC)", lambda one: one.begun_at, unit=ColumnUnit.UTC, drops=1),
        Column("HOSTS", lambda one: len(one.hosts)),
    ),
    name=lambda one: f"{one.machine}/{one.pid}",
    json=lambda one: one,
    empty="no controller has run on this store, or the last one ended",
)


@click.command("list-controllers")
@options.inventory
@options.database
@_LISTING.options
def command(inventories: tuple[str, ...], database: str | None, output: ListOutput) -> None:
    """List the controllers and how many hosts each one watches. Also whether each one runs.

    Each is given 10 seconds to count a beat; `silent` is one that did not. Hosts that no running controller watches are
    named: those of the inventory, or without one those that a controller serves. No host is contacted.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.plural import counted
    from vgpuctl.usecases.operate.list_controllers import list_controllers, restored

    unwatched: Sequence[str] = ()
    with services(inventories=inventories, database=database) as opened:

        def read() -> "Sequence[ListedController]":
            nonlocal unwatched
            controllers, unwatched = list_controllers(opened, has_inventory=bool(inventories))
            return controllers

        mark = restored(opened)
        _LISTING.show(
            output, read, lambda rows: _JSON.print({"controllers": rows, "unwatched": unwatched, "restored": mark})
        )
    if mark is not None and not output.form.is_for_programs():
        say(
            f"the store is as of {format_time(mark.taken_at)} UTC, from {mark.file}: controllers of the store that was"
            " there before are not known; `pgrep -af 'vgpuctl controller'` on each machine shows them"
        )
    if unwatched and not output.form.is_for_programs():
        say(f"{counted(len(unwatched), 'host')} without a running controller: {', '.join(unwatched)}")
