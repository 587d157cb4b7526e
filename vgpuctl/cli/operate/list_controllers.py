# SPDX-License-Identifier: Apache-2.0
"""list-controllers: who watches which hosts."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table, say


@click.command("list-controllers")
@options.inventory
@options.database
@options.as_json
def command(inventories: tuple[str, ...], database: str | None, as_json: bool) -> None:
    """List the controllers that share the store, whether each one runs, and how many hosts it watches.

    Each is given 10 seconds to count a beat; `silent` is one that did not. Hosts that no running controller watches are
    named: those of the inventory, or without one those that a controller serves. No host is contacted.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.plural import counted
    from vgpuctl.model.times import format_time
    from vgpuctl.usecases.operate.list_controllers import list_controllers

    with services(inventories=inventories, database=database) as opened:
        controllers, unwatched = list_controllers(opened, has_inventory=bool(inventories))
    if as_json:
        print_json({"controllers": controllers, "unwatched": unwatched})
        return
    print_table(
        ["MACHINE", "PID", "STATE", "SINCE (UTC)", "HOSTS"],
        [(one.machine, one.pid, one.state, format_time(one.begun_at), len(one.hosts)) for one in controllers],
        empty="no controller has run on this store, or the last one ended",
    )
    if unwatched:
        say(f"{counted(len(unwatched), 'host')} without a running controller: {', '.join(unwatched)}")
