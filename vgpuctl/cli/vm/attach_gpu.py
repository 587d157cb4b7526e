# SPDX-License-Identifier: Apache-2.0
"""attach-gpu: one more GPU share for a VM."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.plug_options import plug_flags, wish_of
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line, say

if TYPE_CHECKING:
    from vgpuctl.model.lease import Lease
    from vgpuctl.model.vm import Vm


class JsonAttachedGpu(TypedDict):
    """A GPU share that a VM gets. when: `now` or `at the next start`, with the reason."""

    changed: bool
    position: int
    when: str
    reason: str | None
    lease: "Lease | None"
    vm: "Vm"


_JSON: "JsonOutput[JsonAttachedGpu]" = JsonOutput()


@click.command("attach-gpu")
@click.argument("name")
@click.argument("what")
@options.tenant
@plug_flags
@options.dry_run
@options.one_host
@options.every_refusal
@options.as_json
def command(
    name: str, what: str, tenant: str, live: bool, next_start: bool, dry_run: bool, as_json: bool, **where: Any
) -> None:
    """Give a VM one more GPU share. WHAT is as for create-vm: A40-8Q, passthrough:H100, vf, 'memory>=16GiB'.

    A guest that runs gets a whole card or a VF at once, on one of its spare ports; a vGPU at the VM's next start, or at
    once with --live where libvirt can. The VM's other GPUs keep their addresses in the guest.
    """
    from vgpuctl.catalog import read_gpu_request
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.found.find_vm import find_vm
    from vgpuctl.usecases.vm.attach_gpu import attach_gpu

    gpu = read_gpu_request(what, what="WHAT")
    wish = wish_of(live=live, next_start=next_start)
    with services(rehearses=dry_run, **where) as opened:
        vm, _leases = find_vm(opened, tenant, name)
        done = attach_gpu(opened, vm, gpu, wish=wish)
        vm, leases = find_vm(opened, tenant, name)
    done_lease = next((one for one in leases if one.index == done.position), None)
    is_live = done.is_live and done_lease is not None and done_lease.problem is None
    is_made = done.vm.state == "stopped" and done_lease is not None
    when = "now" if is_live or is_made else "at the next start"
    if as_json:
        _JSON.print(
            {
                "changed": not dry_run,
                "position": done.position,
                "when": when,
                "reason": done.reason,
                "lease": done_lease,
                "vm": vm,
            }
        )
        return
    if done.reason is not None:
        say(f"{vm.printed_name}: at its next start: {done.reason}")
    where_it_is = ", placed at its next start" if done_lease is None else f", {when}: {done_lease.share.function}"
    verb = "would get" if dry_run else "has" if when == "now" else "gets"
    print_line(f"{vm.printed_name}: {verb} {gpu.text} as GPU {done.position}{where_it_is}")
