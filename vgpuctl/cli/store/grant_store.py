# SPDX-License-Identifier: Apache-2.0
"""grant-store: rights of roles on a store in PostgreSQL."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line, say

if TYPE_CHECKING:
    from vgpuctl.usecases.store.grant_store import GrantedRole


_JSON: "JsonOutput[GrantedRole]" = JsonOutput()


@click.command("grant-store")
@click.option("--role", required=True, metavar="ROLE", help="Role of PostgreSQL, which must exist.")
@click.option(
    "--as", "rights", required=True, metavar="RIGHTS", help="operator, read-only, tenant:NAME, or none to revoke all."
)
@options.dry_run
@options.database
@options.as_json
def command(role: str, rights: str, dry_run: bool, database: str | None, as_json: bool) -> None:
    """Grant a role of PostgreSQL its rights on the store. All its other rights are revoked.

    An operator runs every command and cannot change or delete events. A tenant's role reads the rows of that tenant.
    Run it as the owner of the database. With --dry-run it prints the SQL.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.database_role import parse_rights
    from vgpuctl.usecases.store.grant_store import grant_store

    wanted = parse_rights(rights)
    with services(database=database) as opened:
        granted = grant_store(opened, role, wanted, dry_run=dry_run)
    if as_json:
        _JSON.print(granted)
        return
    if dry_run:
        for statement in granted.statements:
            print_line(f"{statement};")
    outcome = "no change" if not granted.changed else f"would be {rights}" if dry_run else f"is {rights} now"
    say(f"{role}: {outcome}")
