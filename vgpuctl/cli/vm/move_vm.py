# SPDX-License-Identifier: Apache-2.0
"""move-vm: a VM goes cold to another host."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, say


@click.command("move-vm")
@click.argument("name")
@options.tenant
@click.option("--to", metavar="HOST", help="Host to move to.  [default: the one that the scheduler chooses]")
@options.reason("Reason, for the event.", required=False)
@options.shutdown_timeout("Seconds for the guest to shut down before it is forced off.")
@options.no_drain
@options.dry_run
@options.one_host
@options.as_json
def command(
    name: str,
    tenant: str,
    to: str | None,
    reason: str,
    shutdown_timeout_s: float,
    drain_s: float | None,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Move a VM to another host: it is stopped, and starts there with the same disk, addresses, name and UUID.

    It gets GPU shares equal to those it has, which are held on the new host before it is stopped. A disk on storage
    that both hosts share stays where it is; any other is copied through this machine. A VM that was stopped stays so.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.support.find_vm import find_vm
    from vgpuctl.usecases.vm.move_vm import cut_short, finish_move, move_vm, plan_move

    with services(**where) as opened:
        vm, _leases = find_vm(opened, tenant, name)
        plan = None
        if to == vm.host:
            left = cut_short(opened, [vm])
            for _vm, held in () if dry_run else left:
                finish_move(opened, vm, held)
        elif dry_run:
            plan = plan_move(opened, vm, to=to)
        else:
            plan = move_vm(opened, vm, to=to, timeout_s=shutdown_timeout_s, reason=reason, drain_s=drain_s)
    if plan is None:
        if as_json:
            print_json({"changed": bool(left), "from": vm.host, "to": vm.host, "storage": "none", "plan": None})
        else:
            say(f"{vm.label}: {'its move is finished' if left and not dry_run else 'no change'}, it is on {vm.host}")
    elif as_json:
        print_json({"changed": True, "from": vm.host, "to": plan.placement.host, "storage": plan.storage, "plan": plan})
    else:
        verb = "would move" if dry_run else "moved"
        say(f"{vm.label}: {verb} from {vm.host} to {plan.placement.host}, storage: {plan.storage}")
