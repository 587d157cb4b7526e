# SPDX-License-Identifier: Apache-2.0
"""stop-vm: stop running VMs."""

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


@click.command("stop-vm")
@vms("Stop")
@options.hold
@options.shutdown_timeout("Seconds for the guest to shut down before it is forced off.", name="timeout", default_s=60.0)
@options.no_drain
@click.option("--force", is_flag=True, help="Force them off without asking their guests, as by pulling the plug.")
@options.one_host
@options.as_json
def command(
    chosen: VmChoice,
    hold: str,
    hold_for: str | None,
    timeout_s: float,
    drain_s: float | None,
    force: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Stop VMs and keep or release their GPU shares.

    A guest is asked to shut down, and forced off where it does not in time. With --force it is not asked, and data that
    it has not written is lost. QEMU that does not end within a minute is killed, and its VFs go into quarantine.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.vm import Hold
    from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm

    keep_s = options.hold_seconds(hold, hold_for)
    if force:
        options.refuse_waits("--force")
    how = Stop(Hold(hold), None if force else timeout_s, drain_s=drain_s, keep_s=keep_s)
    with services(**where) as opened:

        def stop(found: "Vm") -> "tuple[Vm, bool]":
            vm, changed = stop_vm(opened, found, how)
            if not changed:
                say(f"{vm.printed_name}: no change, it is stopped")
            return vm, changed

        done = chosen.each(opened, stop)
    chosen.answer(
        done,
        outcome=lambda one: "stopped" if one[1] else "unchanged",
        json=changed_json,
        output=_JSON if as_json else None,
    )
