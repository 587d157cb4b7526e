# SPDX-License-Identifier: Apache-2.0
"""forget-host: the store settles what it has of a dead host."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, say
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.usecases.maintenance.forget_host import Forgotten


class JsonForgotten(TypedDict):
    """forgotten: what the store had of the host."""

    host: str
    changed: bool
    forgotten: "Forgotten"
    dry_run: bool


_JSON: "JsonOutput[JsonForgotten]" = JsonOutput()


@click.command("forget-host")
@click.argument("host")
@click.option("--fenced", "is_dead", is_flag=True, help="Say that the host is off, instead of its fencing command.")
@options.reason("Reason, for the events.")
@options.dry_run
@options.yes
@options.one_host
@options.as_json
def command(host: str, is_dead: bool, reason: str, dry_run: bool, yes: bool, as_json: bool, **where: Any) -> None:
    """Remove all that the store has of a dead host. These are its VMs, shares, quota, addresses, volumes and
    reservations.

    Nothing is done on the host. Run `evacuate-host` first, so that VMs on shared storage live on. A host of this name
    that answers later is not trusted until `uncordon-host`. Of a host that the inventory does not list, and that has no
    VMs, only the readings are dropped; `controller` does so after a week.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.maintenance.forget_host import forget_host, known_of
    from vgpuctl.usecases.observed.observations import told_states

    with services(rehearses=dry_run, **where) as opened:
        known = known_of(opened, host)
        what = f"{counted(len(known.vms), 'VM')}, {counted(len(known.volumes), 'volume')}"
        what += f", {counted(len(known.networks), 'network')} and {counted(len(known.reservations), 'reservation')}"
        with opened.store.reading() as session:
            told = told_states(session, known.vms)
        for vm in known.vms:
            say(f"{vm.printed_name}: {told[vm.uuid]} on {host}" + (", would be deleted" if dry_run else ""))
        if not (yes or dry_run):
            confirm(f"Forget {host} with {what} for good?")
        forgotten = forget_host(opened, host, is_dead=is_dead, reason=reason)
    if as_json:
        _JSON.print(
            {"host": host, "changed": forgotten is not None, "forgotten": forgotten or known, "dry_run": dry_run}
        )
    elif forgotten is None:
        say(f"{host}: no change, the store has nothing of it")
    else:
        say(f"{host}: {'would be ' if dry_run else ''}forgotten with {what}")
