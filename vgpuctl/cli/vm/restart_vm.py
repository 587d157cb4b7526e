# SPDX-License-Identifier: Apache-2.0
"""restart-vm: restart VMs."""

from collections.abc import Sequence
from typing import Any

import click

from vgpuctl.cli.forms.vm_selection import JsonVmChange, VmChoice, changed_json, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput

_JSON: "JsonOutput[JsonVmChange | Sequence[JsonVmChange]]" = JsonOutput()


@click.command("restart-vm")
@vms("Restart")
@options.shutdown_timeout("Seconds for the guest to shut down before it is forced off.", name="timeout", default_s=60.0)
@options.no_drain
@options.one_host
@options.as_json
def command(chosen: VmChoice, timeout_s: float, drain_s: float | None, as_json: bool, **where: Any) -> None:
    """Stop VMs and start them again with their GPU shares. A stopped one is started.

    A VM gets everything that waits for its next start, as devices that were attached while it ran. A guest that reboots
    by itself, or `reset-vm`, keeps its devices as they are.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.vm.restart_vm import restart_vm

    with services(**where) as opened:
        done = chosen.each(opened, lambda vm: (restart_vm(opened, vm, timeout_s=timeout_s, drain_s=drain_s), True))
    chosen.answer(done, outcome=lambda _one: "restarted", json=changed_json, output=_JSON if as_json else None)
