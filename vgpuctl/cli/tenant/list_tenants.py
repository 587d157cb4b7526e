# SPDX-License-Identifier: Apache-2.0
"""list-tenants: the tenants of the store with what they may use and do use."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.lists.listing import Column, Listing, ListOutput
from vgpuctl.cli.options import options

if TYPE_CHECKING:
    from vgpuctl.usecases.tenant.list_tenants import ListedTenant, QuotaUse


def quota_text(use: "QuotaUse") -> str:
    """A quota in words: `vgpus 3 / 8 (2 guaranteed)`."""
    from vgpuctl.quota.resources import format_amount

    limit = "no limit" if use.limit is None else format_amount(use.resource, use.limit)
    text = f"{use.resource} {format_amount(use.resource, use.used)} / {limit}"
    if use.guaranteed is not None:
        text += f" ({format_amount(use.resource, use.guaranteed)} guaranteed"
        text += f", {format_amount(use.resource, use.borrowed)} borrowed)" if use.borrowed else ")"
    return text


def _policy(one: "ListedTenant") -> str:
    from vgpuctl.usecases.tenant.set_quota import describe_policy

    return describe_policy(one.policy)


_LISTING: "Listing[ListedTenant, ListedTenant]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.tenant),
        Column("VMS", lambda one: one.vms),
        Column("POOLS", lambda one: one.pools or None, drops=3),
        Column("USED / LIMIT", lambda one: tuple(map(quota_text, one.quotas)) or None, drops=1),
        Column("PREEMPTION", _policy, is_text=True, drops=4),
        Column("CONTACT", lambda one: one.contact, drops=2),
    ),
    name=lambda one: one.tenant,
    json=lambda one: one,
    empty="no tenant yet: add one with `vgpuctl create-tenant NAME`",
)


@click.command("list-tenants")
@options.database
@_LISTING.options
def command(database: str | None, output: ListOutput) -> None:
    """List the tenants, their quotas and what they use. Also their VMs, pools, preemption policy and contact."""
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.tenant.list_tenants import list_tenants

    with services(database=database) as opened:
        _LISTING.show(output, lambda: list_tenants(opened))
