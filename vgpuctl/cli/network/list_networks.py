# SPDX-License-Identifier: Apache-2.0
"""list-networks: the store's networks; no host is contacted."""

from collections import Counter
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.listing import Column, Listing, ListOutput
from vgpuctl.cli.support.state_colours import colour_of_state

if TYPE_CHECKING:
    from vgpuctl.usecases.network.list_networks import ShownNetwork


def _cidr(one: "ShownNetwork") -> str:
    return one.network.request.cidr + (" isolated" if one.network.request.isolated else "")


def _interfaces(one: "ShownNetwork") -> str:
    """How many interfaces were last seen to be as promised, such as `2 kept, 1 broken`."""
    verdicts = Counter(str(port.finding.finding.verdict) for port in one.ports if port.finding is not None)
    return ", ".join(f"{count} {verdict.replace('-', ' ')}" for verdict, count in verdicts.items())


_LISTING: "Listing[ShownNetwork, ShownNetwork]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.network.request.tenant),
        Column("NETWORK", lambda one: one.network.request.name),
        Column("STATE", lambda one: one.network.state, colour=lambda one: colour_of_state(one.network.state)),
        Column("CIDR", _cidr),
        Column("BACKEND", lambda one: one.network.request.backend, drops=4),
        Column("HOST", lambda one: one.network.request.host, drops=3),
        Column("VMS", lambda one: len(one.ports), drops=1),
        Column("INTERFACES", _interfaces, colour=lambda one: colour_of_state(_interfaces(one)), drops=5),
        Column("FREE", lambda one: one.free, drops=2),
        Column("GATEWAY", lambda one: one.gateway, is_wide=True),
        Column("BRIDGE", lambda one: one.bridge, is_wide=True),
    ),
    name=lambda one: f"{one.network.request.tenant}/{one.network.request.name}",
    json=lambda one: one,
    empty="no network yet: create one with `vgpuctl create-network`",
)


@click.command("list-networks")
@options.tenant_filter
@options.database
@_LISTING.options
def command(tenant: str | None, database: str | None, output: ListOutput) -> None:
    """List the tenants' networks with the number of VMs and free addresses."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.network.list_networks import list_networks

    with services(database=database) as opened:
        _LISTING.show(output, lambda: list_networks(opened, tenant=tenant))
