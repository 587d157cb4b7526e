# SPDX-License-Identifier: Apache-2.0
"""check-vm: is the promise of VMs' GPU shares kept?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.numbers import SecondsRange
from vgpuctl.cli.support.output import print_line, say
from vgpuctl.cli.support.vm_selection import VmChoice, vms

if TYPE_CHECKING:
    from vgpuctl.model.proof import Proof
    from vgpuctl.model.vm import Vm


_JSON: "JsonOutput[Proof | Sequence[Proof]]" = JsonOutput()


@click.command("check-vm")
@vms()
@click.option(
    "--timeout",
    "timeout_s",
    type=SecondsRange(1, 600),
    default=60.0,
    show_default=True,
    help="Time for the probe in the guest.",
)
@options.one_host
@options.as_json
def command(chosen: VmChoice, timeout_s: float, as_json: bool, **where: Any) -> None:
    """Check whether running VMs have the GPU shares they were promised, and keep the answers as evidence.

    The host's driver says whether a guest driver is loaded, licensed and has its framebuffer. Where the tenant's file
    has `guest_probe: true`, a probe in the guest is asked too, through the guest agent. Exit code 1 when a promise
    is not kept.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.support.each_vm import on_each_vm
    from vgpuctl.usecases.vm.check_vm import check_vm

    with services(**where) as opened:
        found = chosen.find(opened)
        leases = {vm.uuid: held for vm, held in found}

        def check(vm: "Vm") -> "Proof":
            return check_vm(opened, vm, leases[vm.uuid], timeout_s=timeout_s)

        done = on_each_vm(opened, [vm for vm, _leases in found], check)
    proofs = [(one.vm, one.value) for one in done if one.value is not None]
    if not as_json:
        for vm, proof in proofs:
            _print(vm.printed_name, proof)
    chosen.answer(
        done, outcome=lambda proof: str(proof.verdict), json=lambda proof: proof, output=_JSON if as_json else None
    )
    if any(proof.verdict == "not-kept" for _vm, proof in proofs):
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
