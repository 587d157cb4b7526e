# SPDX-License-Identifier: Apache-2.0
"""restore-vm: make a deleted VM again with its kept disks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.preempt_options import consent_of, preempt_flags, telling_exposed
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.model.vm import Vm


class JsonRestoredVm(TypedDict):
    """A VM that is there again. without: what it had and does not have any more."""

    changed: bool
    dry_run: bool
    vm: "Vm"
    without: "Sequence[str]"


_JSON: "JsonOutput[JsonRestoredVm]" = JsonOutput()


@click.command("restore-vm")
@click.argument("name")
@options.tenant
@click.option("--no-start", is_flag=True, help="Leave the VM stopped.")
@preempt_flags
@options.dry_run
@options.one_host
@options.every_refusal
@options.as_json
def command(
    name: str,
    tenant: str,
    no_start: bool,
    may_preempt: bool,
    grace_s: int | None,
    shutdown_timeout_s: float,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Make a deleted VM again with its kept disks, and start it. The disks are those that `delete-vm --keep-disk` kept.

    It has its former UUID and settings, and runs on the host that has its disks, with new GPU shares there. Without
    room for them it stays stopped; its disks are its own again in any case.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.times import format_time
    from vgpuctl.usecases.vm.restore_vm import find_kept, restore_vm

    with services(rehearses=dry_run, **where) as opened:
        consent = consent_of(
            may_preempt=may_preempt, grace_s=grace_s, shutdown_timeout_s=shutdown_timeout_s, may_ask=not dry_run
        )
        kept = find_kept(opened, tenant, name)
        with telling_exposed(opened, tenant):
            restored = restore_vm(opened, kept, starts=not no_start, consent=consent)
    if dry_run:
        until = format_time(restored.kept_until)
        say(f"{tenant}/{name}: would be restored on {restored.vm.host}; its disks are kept until {until} UTC")
    if as_json:
        _JSON.print({"changed": not dry_run, "dry_run": dry_run, "vm": restored.vm, "without": restored.without})
