# SPDX-License-Identifier: Apache-2.0
"""delete-disk: delete data disks that no VM has."""

from functools import partial
from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.deletion import DELETIONS, JsonDeletions, delete_each
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.named import find_each

_JSON: "JsonOutput[JsonDeletions]" = DELETIONS


@click.command("delete-disk")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@options.tenant
@options.yes
@click.option("--if-exists", is_flag=True, help="Ignore disks that do not exist.")
@options.dry_run
@options.one_host
@options.as_json
def command(
    names: tuple[str, ...], tenant: str, yes: bool, if_exists: bool, dry_run: bool, as_json: bool, **where: Any
) -> None:
    """Delete data disks with their content, or the kept disks of a deleted VM by its name.

    Refused for a disk that a VM has, which is named.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.disk.delete_disk import deletable_disk, delete_kept_or_disk, describe, name_of

    with services(rehearses=dry_run, **where) as opened:
        found = find_each(tenant, names, partial(deletable_disk, opened, tenant), what="disk", if_exists=if_exists)
        delete_each(
            found,
            partial(delete_kept_or_disk, opened),
            what="disk",
            whose=f" of tenant {tenant} with all data",
            name=name_of,
            describe=describe,
            yes=yes,
            dry_run=dry_run,
            as_json=as_json,
        )
