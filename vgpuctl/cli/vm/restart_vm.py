# SPDX-License-Identifier: Apache-2.0
"""restart-vm: restart VMs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.vm_selection import JsonVmChange, VmChoice, changed_json, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput

if TYPE_CHECKING:
    from vgpuctl.model.vm import Vm


_JSON: "JsonOutput[JsonVmChange | Sequence[JsonVmChange]]" = JsonOutput()


@click.command("restart-vm")
@vms("Restart")
@options.shutdown_timeout("Seconds for the guest to shut down before it is forced off.", name="timeout", default_s=60.0)
@options.no_drain
@click.option("--reset", is_flag=True, help="Reset running ones, as by the reset button, without asking their guests.")
@options.one_host
@options.as_json
def command(
    chosen: VmChoice, timeout_s: float, drain_s: float | None, reset: bool, as_json: bool, **where: Any
) -> None:
    """Stop VMs and start them again with their GPU shares. A stopped one is started.

    A VM gets everything that waits for its next start, as devices that were attached while it ran. A guest that reboots
    by itself, or is reset by --reset, keeps its QEMU and its devices as they are.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.vm.reset_vm import reset_vm
    from vgpuctl.usecases.vm.restart_vm import restart_vm

    if reset:
        options.refuse_waits("--reset")
    with services(**where) as opened:

        def restart(vm: "Vm") -> "tuple[Vm, bool]":
            if not reset:
                return restart_vm(opened, vm, timeout_s=timeout_s, drain_s=drain_s), True
            reset_vm(opened, vm)
            return vm, True

        done = chosen.each(opened, restart)
    outcome = "reset" if reset else "restarted"
    chosen.answer(done, outcome=lambda _one: outcome, json=changed_json, output=_JSON if as_json else None)
