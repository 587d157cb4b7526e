# SPDX-License-Identifier: Apache-2.0
"""delete-security-rule: what a group lets in no more."""

from dataclasses import replace

import click

from vgpuctl.cli.network.vpc_objects import change, changing


@click.command("delete-security-rule")
@click.argument("group")
@click.argument("rules", nargs=-1, required=True, metavar="RULE...")
@changing
def command(
    group: str, rules: tuple[str, ...], tenant: str, dry_run: bool, database: str | None, as_json: bool
) -> None:
    """Let less into the VMs of GROUP. A rule that is not there is no error."""
    from vgpuctl.model.vpc import SecurityGroup
    from vgpuctl.model.vpc_text import parse_rule
    from vgpuctl.usecases.network.vpc_commands import change_object

    wanted = [parse_rule(rule) for rule in rules]
    change(
        lambda opened: change_object(
            opened,
            tenant,
            SecurityGroup,
            group,
            lambda there: replace(there, rules=tuple(rule for rule in there.rules if rule not in wanted)),
            dry_run=dry_run,
        ),
        dry_run=dry_run,
        database=database,
        as_json=as_json,
        verb="changed",
    )
