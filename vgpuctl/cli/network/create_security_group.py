# SPDX-License-Identifier: Apache-2.0
"""create-security-group: a named allow-list."""

import click

from vgpuctl.cli.network.vpc_objects import changing, create


@click.command("create-security-group")
@click.argument("name")
@click.option(
    "--rule", "rules", multiple=True, metavar="RULE", help="PROTOCOL[:PORTS][@FROM] that it lets in, several times."
)
@changing
def command(name: str, rules: tuple[str, ...], tenant: str, dry_run: bool, database: str | None, as_json: bool) -> None:
    """Create a security group; its VMs (`create-vm --security-group`) take what its rules let in, and nothing else.

    A rule is icmp, tcp:80, udp:8000-8010@10.9.0.0/24, or any@group:web for what members of a group send.
    `create-security-rule` and `delete-security-rule` change a group that is there.
    """
    from vgpuctl.model.vpc import SecurityGroup
    from vgpuctl.model.vpc_text import parse_rule

    wanted = SecurityGroup(name, tuple(dict.fromkeys(map(parse_rule, rules))))
    create(tenant, wanted, dry_run=dry_run, database=database, as_json=as_json)
