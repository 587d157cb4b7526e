# SPDX-License-Identifier: Apache-2.0
"""check-vm: is the promise of a VM's GPU shares kept?"""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.numbers import DecimalRange
from vgpuctl.cli.support.output import print_json, print_line, say

if TYPE_CHECKING:
    from vgpuctl.model.proof import Proof


@click.command("check-vm")
@click.argument("name")
@options.tenant
@click.option(
    "--timeout",
    "timeout_s",
    type=DecimalRange(1, 600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for the probe in the guest.",
)
@options.one_host
@options.as_json
def command(name: str, tenant: str, timeout_s: float, as_json: bool, **where: Any) -> None:
    """Check whether a running VM has the GPU shares it was promised, and keep the answer as evidence.

    The host's driver says whether a guest driver is loaded, licensed and has its framebuffer. Where the tenant's file
    has `guest_probe: true`, a probe in the guest is asked too, through the guest agent. Exit code 1 when the promise
    is not kept.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.support.find_vm import find_vm
    from vgpuctl.usecases.vm.check_vm import check_vm

    with services(**where) as opened:
        vm, leases = find_vm(opened, tenant, name)
        proof = check_vm(opened, vm, leases, timeout_s=timeout_s)
    if as_json:
        print_json(proof)
    else:
        _print(name, proof)
    if proof.verdict == "not-kept":
        raise click.exceptions.Exit(1)


def _print(name: str, proof: "Proof") -> None:
    words = {"kept": "is kept", "not-kept": "is not kept", "unknown": "cannot be proven"}
    print_line(f"the promise of {name} {words[proof.verdict]}")
    for one in proof.findings:
        print_line(f"{one.verdict:9} {one.part}, by the {one.source}: promised {one.promised}, seen {one.seen}")
        if one.look:
            print_line(f"          look: {one.look}")
    if proof.unasked is not None:
        say(f"the guest was not asked: {proof.unasked}")
    for note in proof.notes:
        print_line(f"note      {note}")
