# SPDX-License-Identifier: Apache-2.0
"""suspend-vm: running VMs go to their hosts' disks."""

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


@click.command("suspend-vm")
@vms("Suspend")
@options.hold
@options.reason("Reason, for the event.", required=False)
@options.no_drain
@options.one_host
@options.as_json
def command(
    chosen: VmChoice,
    hold: str,
    hold_for: str | None,
    reason: str,
    drain_s: float | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Suspend running VMs to the disks of their hosts. Their memory and the state of their vGPUs are kept there.

    A suspended VM is off; `resume-vm` lets its guest go on where it was, also after a reboot of its host, with other
    devices of the same types where its own are gone. Its host needs room for its memory and framebuffer on the disk of
    /var/lib/libvirt/qemu/save. Until it goes on it can be deleted, and nothing else of it can change.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.vm import Hold
    from vgpuctl.usecases.vm.stop_vm import Stop
    from vgpuctl.usecases.vm.suspend_vm import suspend_vm

    how = Stop(Hold(hold), None, reason or None, options.hold_seconds(hold, hold_for), drain_s)
    with services(**where) as opened:

        def suspend(found: "Vm") -> "tuple[Vm, bool]":
            vm, changed = suspend_vm(opened, found, how)
            if not changed:
                say(f"{vm.printed_name}: no change, it is suspended")
            return vm, changed

        done = chosen.each(opened, suspend)
    chosen.answer(
        done,
        outcome=lambda one: "suspended" if one[1] else "unchanged",
        json=changed_json,
        output=_JSON if as_json else None,
    )
