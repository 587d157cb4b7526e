# SPDX-License-Identifier: Apache-2.0
"""start-vm: start VMs that are stopped or paused."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.vm_selection import JsonVmChange, VmChoice, changed_json, runs_already, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.options.preempt_options import consent_of, preempt_flags, telling_exposed
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.model.vm import Vm


_JSON: "JsonOutput[JsonVmChange | Sequence[JsonVmChange]]" = JsonOutput()


@click.command("start-vm")
@vms("Start")
@click.option(
    "--discard-state", "discards", is_flag=True, help="Boot suspended VMs anew, without what they had in memory."
)
@preempt_flags
@options.one_host
@options.every_refusal
@options.as_json
def command(
    chosen: VmChoice,
    discards: bool,
    may_preempt: bool,
    grace_s: int | None,
    shutdown_timeout_s: float,
    as_json: bool,
    **where: Any,
) -> None:
    """Start VMs that are stopped or paused. GPU shares that the host lost are built again.

    The guest of a VM that libvirt has paused, for example after an error of its disk, goes on with its shares.
    A suspended VM goes on where it was, as by `resume-vm`.
    When it fits only if other VMs of its host are preempted, the refusal names them; --preempt preempts them.
    With several VMs, each starts by itself, and nobody is asked about preemption.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.vm.start_vm import start_vm

    with services(**where) as opened:
        consent = consent_of(
            may_preempt=may_preempt, grace_s=grace_s, shutdown_timeout_s=shutdown_timeout_s, may_ask=chosen.is_one
        )

        def start(found: "Vm") -> "tuple[Vm, bool]":
            ((vm, changed),) = start_vm(opened, [found], consent=consent, discards=discards)
            if not changed:
                say(runs_already(vm))
            return vm, changed

        found = [vm for vm, _leases in chosen.find(opened)]
        with telling_exposed(opened, *dict.fromkeys(vm.request.tenant for vm in found)):
            done = chosen.on(opened, found, start)
    chosen.answer(
        done,
        outcome=lambda one: "started" if one[1] else "unchanged",
        json=changed_json,
        output=_JSON if as_json else None,
    )
