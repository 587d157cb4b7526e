# SPDX-License-Identifier: Apache-2.0
"""reset-vm: reset running VMs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.vm_selection import JsonVmChange, VmChoice, changed_json, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput

if TYPE_CHECKING:
    from vgpuctl.model.vm import Vm


_JSON: "JsonOutput[JsonVmChange | Sequence[JsonVmChange]]" = JsonOutput()


@click.command("reset-vm")
@vms("Reset")
@options.one_host
@options.as_json
def command(chosen: VmChoice, as_json: bool, **where: Any) -> None:
    """Reset running VMs, as the reset button of a machine does. Their guests are not asked.

    QEMU keeps running, and the devices stay as they are; `restart-vm` applies what waits for a start.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.vm.reset_vm import reset_vm

    with services(**where) as opened:

        def reset(vm: "Vm") -> "tuple[Vm, bool]":
            reset_vm(opened, vm)
            return vm, True

        done = chosen.each(opened, reset)
    chosen.answer(done, outcome=lambda _one: "reset", json=changed_json, output=_JSON if as_json else None)
