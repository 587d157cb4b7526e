# SPDX-License-Identifier: Apache-2.0
"""detach-gpu: one GPU share less for a VM."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.options.plug_options import plug_flags, wish_of
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line

if TYPE_CHECKING:
    from vgpuctl.model.lease import Lease
    from vgpuctl.model.vm import Vm


class JsonDetachedGpu(TypedDict):
    """A GPU share that a VM gives up. state: `detached`, or `pending` until the guest releases it, or stops."""

    changed: bool
    position: int
    state: str
    reason: str | None
    lease: "Lease | None"
    vm: "Vm"


_JSON: "JsonOutput[JsonDetachedGpu]" = JsonOutput()


@click.command("detach-gpu")
@click.argument("name")
@click.argument("index", type=WholeRange(0, 15))
@options.tenant
@plug_flags
@options.shutdown_timeout("Seconds for the guest to release the GPU.", name="timeout", default_s=30.0)
@options.dry_run
@options.one_host
@options.as_json
def command(
    name: str,
    index: int,
    tenant: str,
    live: bool,
    next_start: bool,
    timeout_s: float,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Detach a GPU share from a VM. INDEX is its number in show-vm, which counts from 0.

    A guest that runs is asked to release a whole card or a VF at once; a vGPU is detached when the VM stops, or at
    once with --live where libvirt can. While the guest keeps the GPU its share is `releasing` and stays the VM's;
    `vgpuctl repair` asks again. The VM's other GPUs keep their addresses in the guest.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.found.find_vm import find_vm
    from vgpuctl.usecases.vm.detach_gpu import detach_gpu

    wish = wish_of(live=live, next_start=next_start)
    with services(rehearses=dry_run, **where) as opened:
        vm, _leases = find_vm(opened, tenant, name)
        done = detach_gpu(opened, vm, index, wish=wish, timeout_s=timeout_s)
    state = "pending" if done.is_pending else "detached"
    if as_json:
        _JSON.print(
            {
                "changed": not dry_run,
                "position": index,
                "state": state,
                "reason": done.reason,
                "lease": done.lease,
                "vm": done.vm,
            }
        )
        return
    reason = "" if done.reason is None else f": {done.reason}"
    print_line(f"{vm.printed_name}: GPU {index} {'would be ' if dry_run else 'is '}{state}{reason}")
