# SPDX-License-Identifier: Apache-2.0
"""move-vm: VMs go cold to another host."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.vm_selection import VmChoice, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.model.vm import Vm
    from vgpuctl.usecases.vm.move_vm import PlannedMove


JsonMove = TypedDict(
    "JsonMove",
    {"changed": bool, "from": str, "to": str, "storage": str, "plan": "PlannedMove | None"},
)
"""A move from one host to another. storage: how its volumes get there, or `none`. plan: None if the VM stays."""


_JSON: "JsonOutput[JsonMove | Sequence[JsonMove]]" = JsonOutput()


@click.command("move-vm")
@vms("Move")
@click.option("--to", metavar="HOST", help="Host to move to.  [default: the one that the scheduler chooses]")
@options.reason("Reason, for the event.", required=False)
@options.shutdown_timeout("Seconds for the guest to shut down before it is forced off.")
@options.no_drain
@options.dry_run
@options.one_host
@options.as_json
def command(
    chosen: VmChoice,
    to: str | None,
    reason: str,
    shutdown_timeout_s: float,
    drain_s: float | None,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Move VMs to another host with disks and equal GPU shares. Each is stopped, and starts there with the same
    addresses, name and UUID.

    It gets GPU shares equal to those it has, which are held on the new host before it is stopped. A disk on storage
    that both hosts share stays where it is; any other is copied through this machine. A VM that was stopped stays so.
    Several VMs are moved one after the other.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.vm.move_vm import cut_short, finish_move, move_vm

    with services(rehearses=dry_run, **where) as opened:

        def move(vm: "Vm") -> JsonMove:
            plan = None
            if to == vm.host:
                left = cut_short(opened, [vm])
                for _vm, held in left:
                    finish_move(opened, vm, held)
            else:
                plan = move_vm(opened, vm, to=to, timeout_s=shutdown_timeout_s, reason=reason, drain_s=drain_s)
            if plan is None:
                say(
                    f"{vm.printed_name}: {'its move is finished' if left and not dry_run else 'no change'}, "
                    f"it is on {vm.host}"
                )
                return {"changed": bool(left), "from": vm.host, "to": vm.host, "storage": "none", "plan": None}
            verb, target = "would move" if dry_run else "moved", plan.placement.host
            say(f"{vm.printed_name}: {verb} from {vm.host} to {target}, storage: {plan.storage}")
            return {"changed": True, "from": vm.host, "to": target, "storage": plan.storage, "plan": plan}

        found = chosen.find(opened, asks=not dry_run)
        done = chosen.on(opened, [vm for vm, _leases in found], move, is_in_turn=True)
    for one in done if dry_run and chosen.is_summed_up(len(done)) else ():
        if one.value is not None and one.value["changed"]:
            say(f"{one.vm.printed_name}: would move from {one.value['from']} to {one.value['to']}")
    word = "to be moved" if dry_run else "moved"
    chosen.answer(
        done,
        outcome=lambda moved: word if moved["changed"] else "unchanged",
        json=lambda moved: moved,
        output=_JSON if as_json else None,
    )
