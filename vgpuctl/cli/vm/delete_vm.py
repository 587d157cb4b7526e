# SPDX-License-Identifier: Apache-2.0
"""delete-vm: ask, delete each VM, tell."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms import stored_kind
from vgpuctl.cli.forms.vm_selection import VmChoice, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, say
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.model.vm import Vm

_USUAL_TIME = "7d"


_JSON: "JsonOutput[stored_kind.JsonDeletions]" = JsonOutput()


@click.command("delete-vm")
@vms()
@options.yes
@stored_kind.if_exists
@click.option(
    "--keep-disk",
    "keep",
    is_flag=False,
    flag_value=_USUAL_TIME,
    metavar="DURATION",
    help=f"Keep the disks for this time, so that restore-vm can bring the VM back.  [without DURATION: {_USUAL_TIME}]",
)
@options.shutdown_timeout("Seconds for the guest to shut down before it is forced off.", name="timeout", default_s=30.0)
@options.no_drain
@options.dry_run
@options.one_host
@options.as_json
def command(
    chosen: VmChoice,
    yes: bool,
    if_exists: bool,
    keep: str | None,
    timeout_s: float,
    drain_s: float | None,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Delete VMs with their disks and release their devices. VMs that wait in the queue leave it, with their gangs."""
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.times import parse_duration
    from vgpuctl.usecases.cluster.leave_cluster import leaving_together
    from vgpuctl.usecases.disk.kept_disks import vms_with_disks
    from vgpuctl.usecases.observed.observations import told_states
    from vgpuctl.usecases.placement.queued_vms import leave_each
    from vgpuctl.usecases.vm.delete_vm import check_keeping, delete_vm, refuse_kept_below

    keep_s = None if keep is None else parse_duration(keep, what="--keep-disk")
    with services(rehearses=dry_run, **where) as opened:
        queued, chosen = chosen.queued(opened)
        found = chosen.find(opened, if_exists=if_exists)
        for one in queued:
            say(f"{one.printed_name}: queued" + " would leave the queue" * dry_run)
        with opened.store.reading() as session:
            told = told_states(session, [vm for vm, _leases in found])
        for vm, leases in found:
            refuse_kept_below(opened, vm)
            if keep_s is not None:
                check_keeping(opened, vm)
            devices = ", ".join(f"{lease.share.profile} on {lease.share.function}" for lease in leases) or "no GPU"
            say(f"{vm.printed_name}: {told[vm.uuid]} on {vm.host}, {devices}" + " would be deleted" * dry_run)
        doomed = [vm for vm, _leases in found]
        if not (dry_run or yes) and (doomed or queued):
            with opened.store.reading() as session:
                have_disks = not vms_with_disks(session).isdisjoint(vm.uuid for vm in doomed)
            disks = (" with disks" if keep is None else f" and keep the disks for {keep}") if have_disks else ""
            of_vms = f"{counted(len(doomed), 'VM')}{disks}" if doomed else ""
            waiting = f"{counted(len(queued), 'queued VM')}{' and ' if doomed else ''}" if queued else ""
            confirm(f"Delete {waiting}{of_vms}?")

        leave_each(opened, queued)

        def delete(vm: "Vm") -> None:
            delete_vm(opened, vm, timeout_s=timeout_s, drain_s=drain_s, keep_s=keep_s)

        with leaving_together(opened, doomed if len(doomed) > 1 else [], "its VM is deleted"):
            done = chosen.on(opened, doomed, delete)
    if as_json:
        gone = [one.vm.printed_name for one in done if one.error is None]
        gone += [one.printed_name for one in queued]
        _JSON.print(stored_kind.deletions_json(gone, dry_run=dry_run))
    if not chosen.is_empty:
        chosen.finish(done, outcome=lambda _one: "would be deleted" if dry_run else "deleted")
