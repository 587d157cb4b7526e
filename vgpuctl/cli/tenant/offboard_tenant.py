# SPDX-License-Identifier: Apache-2.0
"""offboard-tenant: list the objects to remove, ask, remove them and prove it."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, TypedDict

import click

from vgpuctl.cli.forms.stored_kind import deletions_json
from vgpuctl.cli.forms.vm_selection import quiet
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, say


class JsonOffboarded(TypedDict):
    """deleted: what the tenant had, a line each. would_delete: the same of a dry run; then `deleted` is empty.

    hosts_asked: hosts on which nothing is left.
    """

    tenant: str
    deleted: Sequence[str]
    would_delete: Sequence[str]
    hosts_asked: Sequence[str]
    dry_run: bool


_JSON: "JsonOutput[JsonOffboarded]" = JsonOutput()


@click.command("offboard-tenant")
@click.argument("name")
@options.yes
@options.shutdown_timeout(
    "Seconds for each guest to shut down before it is forced off.", name="timeout", default_s=30.0
)
@click.option("--delete-disks", "deletes_disks", is_flag=True, help="Delete disks that are to outlive their VMs too.")
@options.dry_run
@options.one_host
@options.as_json
def command(
    name: str, yes: bool, timeout_s: float, deletes_disks: bool, dry_run: bool, as_json: bool, **where: Any
) -> None:
    """Remove a tenant with all its objects. These are VMs, shares, reservations, networks, addresses, grants and
    quotas.

    Its name and its usage stay. At the end every host is searched for leftovers.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.plural import counted
    from vgpuctl.usecases.tenant.offboard_tenant import belongings, offboard_tenant

    with services(rehearses=dry_run, **where) as opened:
        found = belongings(opened, name)
        lines = found.lines()
        for line in lines:
            say(line)
        if not (yes or dry_run):
            disks = ", with disks" if found.with_disks or found.disks or found.deleted_vms else ""
            confirm(f"Delete all of this of {name}{disks}?")
        with quiet() if dry_run else nullcontext():
            asked = offboard_tenant(opened, name, timeout_s=timeout_s, deletes_disks=deletes_disks)
    if dry_run:
        say(f"{name}: {counted(len(lines), 'object')} would be deleted")
    else:
        say(f"{name}: nothing is left on {counted(len(asked), 'host')}")
    if as_json:
        _JSON.print({"tenant": name, "hosts_asked": asked, **deletions_json(lines, dry_run=dry_run)})
