# SPDX-License-Identifier: Apache-2.0
"""wait: wait until VMs meet a condition."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.vm_selection import VmChoice, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line, show_status

if TYPE_CHECKING:
    from vgpuctl.usecases.running.services import Services
    from vgpuctl.usecases.vm.wait import Awaited, AwaitedName


_LONGEST_S = 30 * 86_400
_JSON: "JsonOutput[Awaited | Sequence[Awaited]]" = JsonOutput()


@click.command("wait")
@vms()
@click.option(
    "--for",
    "condition",
    required=True,
    type=click.Choice(["running", "stopped", "placed", "deleted"]),
    help="State to wait for; placed: out of the queue, on a host.",
)
@options.seconds("timeout", "10m", "Longest wait: 30, 30s, 10m, 2h; 0 for one look.", most=_LONGEST_S)
@options.one_host
@options.as_json
def command(chosen: VmChoice, condition: str, timeout_s: float, as_json: bool, **where: Any) -> None:
    """Wait until VMs are running, stopped, placed or deleted. VMs in the queue too.

    Prints a line for each VM as it meets the condition. Ends with exit code 13 when the time is over, and at once when
    a VM cannot meet the condition: it does not exist, is broken, or is deleted meanwhile. The store is read every
    second; the host of a VM is asked every five seconds where `vgpuctl controller` does not do it.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.cli.shown.progress import waiting_text
    from vgpuctl.usecases.vm.wait import Condition, wait_for

    wanted = Condition(condition)

    def tell(one: "Awaited") -> None:
        if not as_json:
            print_line(
                f"{one.printed_name}: {wanted}" + (f" on {one.host}" if one.host else "") + f", {one.waited_s:.0f} s"
            )

    def watch(awaiting: "Sequence[Awaited]", elapsed_s: float) -> None:
        show_status(waiting_text([one.line for one in awaiting], str(wanted), elapsed_s))

    with services(**where) as opened:
        names = _names(opened, chosen, if_exists=wanted is Condition.DELETED)
        try:
            met = wait_for(opened, names, wanted, timeout_s=timeout_s, tell=tell, watch=watch)
        finally:
            show_status("")
    if as_json:
        _JSON.print(met[0] if chosen.is_one else met)


def _names(opened: "Services", chosen: VmChoice, *, if_exists: bool) -> "Sequence[AwaitedName]":
    """The VMs of the command line, also those in the queue, and with if_exists names of VMs that are not there."""
    from vgpuctl.usecases.vm.wait import AwaitedName

    queued, rest = chosen.queued(opened)
    found = [AwaitedName(one.tenant, one.name) for one in queued]
    if not rest.is_empty:
        for vm, _leases in rest.find(opened, if_exists=if_exists):
            found.append(AwaitedName(vm.request.tenant, vm.request.name, vm.uuid))
    named = {(one.tenant, one.name) for one in found}
    missing = [one for one in chosen.selection.plain_names() if if_exists and one not in named]
    return [*found, *(AwaitedName(*one) for one in missing)]
