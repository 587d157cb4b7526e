# SPDX-License-Identifier: Apache-2.0
"""force-off: force VMs off."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.vm_selection import JsonVmChange, VmChoice, changed_json, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.model.vm import Vm


_JSON: "JsonOutput[JsonVmChange | Sequence[JsonVmChange]]" = JsonOutput()


@click.command("force-off")
@vms("Force off")
@options.one_host
@options.as_json
def command(chosen: VmChoice, as_json: bool, **where: Any) -> None:
    """Force VMs off without asking their guests. Their GPU shares are kept for the next start.

    Data that a guest has not written is lost, as when a machine's plug is pulled.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.vm.force_off import force_off

    with services(**where) as opened:

        def end(found: "Vm") -> "tuple[Vm, bool]":
            vm, changed = force_off(opened, found)
            if not changed:
                say(f"{vm.printed_name}: no change, it is stopped")
            return vm, changed

        done = chosen.each(opened, end)
    chosen.answer(
        done,
        outcome=lambda one: "forced off" if one[1] else "unchanged",
        json=changed_json,
        output=_JSON if as_json else None,
    )
