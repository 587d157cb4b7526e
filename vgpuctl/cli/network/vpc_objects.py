# SPDX-License-Identifier: Apache-2.0
"""What the commands for gateways, security groups, balancers and the like have in common."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import confirm, print_json, say

if TYPE_CHECKING:
    from vgpuctl.model.vpc import VpcSpec
    from vgpuctl.usecases.network.vpc_commands import CreatedObject
    from vgpuctl.usecases.support.services import Services

Command = TypeVar("Command", bound=Callable[..., Any])
TENANT = click.option("--tenant", required=True, metavar="NAME", help="The tenant whose networks it belongs to.")


def changing(function: Command) -> Command:
    """Options of every command that changes an object, --json last."""
    for option in (options.as_json, options.database, options.dry_run, TENANT):
        function = option(function)
    return function


def create(tenant: str, wanted: "VpcSpec", *, dry_run: bool, database: str | None, as_json: bool) -> None:
    """Create one object and tell."""
    from vgpuctl.usecases.network.vpc_commands import create_object

    change(
        lambda opened: create_object(opened, tenant, wanted, dry_run=dry_run),
        dry_run=dry_run,
        database=database,
        as_json=as_json,
    )


def change(
    do: "Callable[[Services], CreatedObject]",
    *,
    dry_run: bool,
    database: str | None,
    as_json: bool,
    verb: str = "created",
) -> None:
    """Do what a command is for and tell what became of its object."""
    from vgpuctl.cli.support.services import services

    with services(database=database) as opened:
        created = do(opened)
    shown = created.object
    if as_json:
        print_json(
            {"changed": created.changed and not dry_run, "object": shown, "remarks": created.remarks},
        )
        return
    outcome = "no change" if not created.changed else f"would be {verb}" if dry_run else verb
    address = getattr(shown.spec, "address", "")
    say(f"{shown.kind} {shown.tenant}.{shown.name}: {outcome}{f', {address}' * bool(address)}")
    for remark in created.remarks:
        say(f"{shown.kind} {shown.tenant}.{shown.name}: {remark}")


def delete_command(kind: str, metavar: str, text: str) -> click.Command:
    """The command `delete-KIND`: ask, delete, tell. metavar: how its names are called, empty for the only one."""

    @click.command(f"delete-{kind}", help=text)
    @TENANT
    @options.yes
    @click.option("--if-exists", is_flag=True, help="What is not there is no error.")
    @options.dry_run
    @options.database
    @options.as_json
    def command(
        tenant: str,
        yes: bool,
        if_exists: bool,
        dry_run: bool,
        database: str | None,
        as_json: bool,
        names: Sequence[str] = (kind,),
    ) -> None:
        from vgpuctl.cli.support.services import services
        from vgpuctl.model.vpc import VpcKind
        from vgpuctl.usecases.network.vpc_commands import delete_objects, find_objects

        with services(database=database) as opened:
            found = find_objects(opened, tenant, VpcKind(kind), names, if_exists=if_exists)
            if found and not (dry_run or yes):
                listed = ", ".join(one.name for one in found)
                confirm(f"Delete {kind} {listed} of tenant {tenant}?")
            if found:
                delete_objects(opened, found, dry_run=dry_run)
            for one in found if dry_run else ():
                say(f"{kind} {tenant}.{one.name}: would be deleted")
        if as_json:
            print_json({"deleted": [] if dry_run else [one.name for one in found], "dry_run": dry_run})

    if metavar:
        command = click.argument("names", nargs=-1, required=True, metavar=f"{metavar}...")(command)
    return command
