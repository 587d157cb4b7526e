# SPDX-License-Identifier: Apache-2.0
"""resume-vm: suspended VMs go on where they were."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.vm_selection import JsonVmChange, VmChoice, changed_json, runs_already, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.model.vm import Vm


_JSON: "JsonOutput[JsonVmChange | Sequence[JsonVmChange]]" = JsonOutput()


@click.command("resume-vm")
@vms("Resume")
@options.one_host
@options.every_refusal
@options.as_json
def command(chosen: VmChoice, as_json: bool, **where: Any) -> None:
    """Let suspended VMs go on where they were. Their hosts have saved their memory and the state of their vGPUs.

    GPU shares that were released, or that the host lost, are made again on any of its GPUs that has the same types.
    Then the log of QEMU is read: where it says that a vGPU was reset instead, the command says so and fails.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.vm.resume_vm import resume_vm

    with services(**where) as opened:

        def resume(found: "Vm") -> "tuple[Vm, bool]":
            vm, changed = resume_vm(opened, found)
            if not changed:
                say(runs_already(vm))
            return vm, changed

        done = chosen.each(opened, resume)
    chosen.answer(
        done,
        outcome=lambda one: "resumed" if one[1] else "unchanged",
        json=changed_json,
        output=_JSON if as_json else None,
    )
