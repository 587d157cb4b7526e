# SPDX-License-Identifier: Apache-2.0
"""create-security-rule: one more thing that a group lets in."""

from dataclasses import replace

import click

from vgpuctl.cli.network.vpc_objects import change, changing


@click.command("create-security-rule")
@click.argument("group")
@click.argument("rules", nargs=-1, required=True, metavar="RULE...")
@changing
def command(
    group: str, rules: tuple[str, ...], tenant: str, dry_run: bool, database: str | None, as_json: bool
) -> None:
    """Let more into the VMs of GROUP: icmp, tcp:80, udp:8000-8010@10.9.0.0/24, any@group:web.

    What a tenant's file says of the group comes again with the file.
    """
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
            lambda there: replace(there, rules=tuple(dict.fromkeys((*there.rules, *wanted)))),
            dry_run=dry_run,
        ),
        dry_run=dry_run,
        database=database,
        as_json=as_json,
        verb="changed",
    )
