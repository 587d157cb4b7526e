# SPDX-License-Identifier: Apache-2.0
"""move-vm: VMs go to another host, while they run where that can be."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.vm_selection import VmChoice, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.move_verdicts import JsonMoveCheck, move_check_json, show_move_check
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.model.move_verdict import MoveKind, MoveVerdict
    from vgpuctl.model.vm import Vm
    from vgpuctl.usecases.vm.move_plan import PlannedMove


JsonMove = TypedDict(
    "JsonMove",
    {
        "changed": bool,
        "from": str,
        "to": str,
        "storage": str,
        "way": "MoveKind | None",
        "downtime_s": float | None,
        "plan": "PlannedMove | None",
    },
)
"""A move from one host to another. storage: how its volumes get there, or `none`. plan: None if the VM stays.

way: `live` or `cold`. downtime_s: how long a live move halted the guest, as libvirt measured it.
"""


_JSON: "JsonOutput[JsonMove | JsonMoveCheck | Sequence[JsonMove | JsonMoveCheck]]" = JsonOutput()


@click.command("move-vm")
@vms("Move")
@click.option("--to", metavar="HOST", help="Host to move to.  [default: the one that the scheduler chooses]")
@click.option(
    "--check", "is_check", is_flag=True, help="Say how each host could take the VM, live or cold, and move nothing."
)
@options.reason("Reason, for the event.", required=False)
@options.move_way
@options.max_downtime
@click.option(
    "--trust-hosts",
    "trusts_hosts",
    is_flag=True,
    help="Move live also between hosts where a move has lost the state of a vGPU before.",
)
@options.shutdown_timeout("Seconds for the guest of a cold move to shut down before it is forced off.")
@options.no_drain
@options.dry_run
@options.one_host
@options.as_json
def command(
    chosen: VmChoice,
    to: str | None,
    is_check: bool,
    reason: str,
    shutdown_timeout_s: float,
    drain_s: float | None,
    way: str | None,
    max_downtime_s: float | None,
    trusts_hosts: bool,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Move VMs to another host with disks and equal GPU shares. Each goes on running where both hosts can do that, and
    is else stopped, and starts there with the same addresses, name and UUID.

    It gets GPU shares equal to those it has, which are held on the new host before anything happens to it. A disk on
    storage that both hosts share stays where it is; any other is copied. A VM that was stopped stays so.
    Several VMs are moved one after the other. Those that are named are not asked about, also where they are stopped,
    as by stop-vm; those that a glob, --selector, --limit or --all has found are.

    After a live move everything that was promised is looked at again: where that finds that the vGPU was reset on the
    way, or finds nothing out, the command says so and fails.

    --check reads the hosts and writes nothing on them: for each host that the VM could go to it says whether it can be
    moved live, what forbids that, and what helps.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.vm.move_vm import MoveOptions, MoveWay, move_vm, settled

    if is_check:
        _check(chosen, to, max_downtime_s, trusts_hosts=trusts_hosts, as_json=as_json, **where)
        return
    with services(rehearses=dry_run, **where) as opened:

        def move(vm: "Vm") -> JsonMove:
            source, has_come, done = vm.host, vm.has_come, None
            vm, was_cut_short = settled(opened, vm)
            if to != vm.host and not (to is None and (has_come or vm.host != source)):
                wanted = MoveOptions(
                    MoveWay(way or MoveWay.KINDEST), shutdown_timeout_s, reason, drain_s, max_downtime_s, trusts_hosts
                )
                done = move_vm(opened, vm, wanted, to=to)
                if done.live is not None:
                    done.live.state.require(done.live.vm)
            if done is None:
                found = "its move is finished" if was_cut_short and not dry_run else "no change"
                say(f"{vm.printed_name}: {found}, it is on {vm.host}{'' if vm.problem is None else f': {vm.problem}'}")
                return {
                    "changed": was_cut_short,
                    "from": source,
                    "to": vm.host,
                    "storage": "none",
                    "way": None,
                    "downtime_s": None,
                    "plan": None,
                }
            verb, target, storage = "would move" if dry_run else "moved", done.plan.placement.host, done.plan.storage
            say(f"{vm.printed_name}: {verb} {done.kind} from {vm.host} to {target}, storage: {storage}")
            return {
                "changed": True,
                "from": vm.host,
                "to": target,
                "storage": storage,
                "way": done.kind,
                "downtime_s": None if done.live is None else done.live.downtime_s,
                "plan": done.plan,
            }

        found = chosen.find(opened, asks=not dry_run)
        ended = chosen.on(opened, [vm for vm, _leases in found], move, is_in_turn=True)
    for one in ended if dry_run and chosen.is_summed_up(len(ended)) else ():
        if one.value is not None and one.value["changed"]:
            say(f"{one.vm.printed_name}: would move from {one.value['from']} to {one.value['to']}")
    word = "to be moved" if dry_run else "moved"
    chosen.answer(
        ended,
        outcome=lambda moved: word if moved["changed"] else "unchanged",
        json=lambda moved: moved,
        output=_JSON if as_json else None,
    )


def _check(
    chosen: VmChoice, to: str | None, max_downtime_s: float | None, *, trusts_hosts: bool, as_json: bool, **where: Any
) -> None:
    """Say how the VMs could go to other hosts."""
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.vm.move_check import check_move

    with services(**where) as opened, opened.asking_once():
        vms = [vm for vm, _leases in chosen.find(opened, asks=False)]

        def check(vm: "Vm") -> "list[tuple[str, MoveVerdict]]":
            return check_move(opened, vm, to, max_downtime_s=max_downtime_s, trusts_hosts=trusts_hosts)

        done = chosen.on(opened, vms, check, is_in_turn=True)
    if not as_json:
        for one in done:
            if one.value is not None:
                show_move_check(one.vm, one.value, to)
    else:
        found = [move_check_json(one.vm, one.value) for one in done if one.value is not None]
        if not chosen.is_one:
            _JSON.print(found)
        elif found:
            _JSON.print(found[0])
    chosen.finish(done, outcome=lambda _found: "checked")
