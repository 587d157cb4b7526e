# SPDX-License-Identifier: Apache-2.0
"""list-security-rules: packets that each security rule decided, by host."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.lists.listing import Column, Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.model.times import format_time_to_second

if TYPE_CHECKING:
    from vgpuctl.usecases.network.list_security_rules import RuleHits

_LISTING: "Listing[RuleHits, RuleHits]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.tenant),
        Column("GROUP", lambda one: one.group),
        Column("RULE", lambda one: one.rule),
        Column("HOST", lambda one: one.host),
        Column("PACKETS", lambda one: one.packets),
        Column("BYTES", lambda one: one.bytes, drops=1),
        Column("SINCE", lambda one: None if one.since is None else format_time_to_second(one.since), drops=2),
        Column("NOT LOOKED AT", lambda one: one.not_looked_at or None, is_rare=True, is_text=True),
    ),
    name=lambda one: f"{one.tenant}/{one.group or ''}/{one.rule}",
    in_order=True,
    json=lambda one: one,
    empty="no rules: no tenant has a network that OVN carries",
)


@click.command("list-security-rules")
@options.tenant_filter
@click.option("--group", metavar="NAME", help="Only rules of this security group.")
@options.one_host
@options.forks
@_LISTING.options
def command(tenant: str | None, group: str | None, output: ListOutput, **where: Any) -> None:
    """List security rules and the packets that they decided, by host. Each host of a running VM in the group is asked.

    Open vSwitch counts the packets of a rule's flows, those of connections that the rule let in among them. The count
    begins again when ovn-controller makes the flows again; SINCE says when. A rule that could not be looked at has no
    count. Needs VGPUCTL_OVN_NORTHBOUND and VGPUCTL_OVN_SOUTHBOUND.
    """
    from vgpuctl.cli.forms.services import services

    with services(**where) as opened:
        from vgpuctl.usecases.network.list_security_rules import list_security_rules

        _LISTING.show(output, lambda: list_security_rules(opened, tenant=tenant, group=group))
