# SPDX-License-Identifier: Apache-2.0
"""start-vm: start a VM that is stopped or paused."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, say
from vgpuctl.cli.support.preempt_options import consent_of, preempt_flags, telling_exposed


@click.command("start-vm")
@click.argument("name")
@options.tenant
@preempt_flags
@options.one_host
@options.every_refusal
@options.as_json
def command(
    name: str,
    tenant: str,
    may_preempt: bool,
    grace_s: int | None,
    shutdown_timeout_s: float,
    as_json: bool,
    **where: Any,
) -> None:
    """Start a VM, with its GPU shares built again where the host lost them.

    The guest of a VM that libvirt has paused, for example after an error of its disk, goes on with its shares.
    When it fits only if other VMs of its host are preempted, the refusal names them; --preempt preempts them.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.support.find_vm import find_vm
    from vgpuctl.usecases.vm.start_vm import start_vm

    with services(**where) as opened:
        consent = consent_of(may_preempt=may_preempt, grace_s=grace_s, shutdown_timeout_s=shutdown_timeout_s)
        with telling_exposed(opened, tenant):
            ((vm, changed),) = start_vm(opened, [find_vm(opened, tenant, name)[0]], consent=consent)
        if not changed:
            say(f"{vm.domain_name}: no change, it is running on {vm.host}")
    if as_json:
        print_json({"changed": changed, "vm": vm})
