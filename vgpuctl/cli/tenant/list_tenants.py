# SPDX-License-Identifier: Apache-2.0
"""list-tenants: the tenants of the store with what they may use and do use."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table


@click.command("list-tenants")
@options.database
@options.as_json
def command(database: str | None, as_json: bool) -> None:
    """List tenants with their VMs, pools, quotas (used / limit), preemption policy and contact."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.quota.resources import format_amount
    from vgpuctl.usecases.tenant.list_tenants import QuotaUse, list_tenants
    from vgpuctl.usecases.tenant.set_quota import describe_policy

    def shown(use: QuotaUse) -> str:
        limit = "no limit" if use.limit is None else format_amount(use.resource, use.limit)
        text = f"{use.resource} {format_amount(use.resource, use.used)} / {limit}"
        if use.guaranteed is not None:
            text += f" ({format_amount(use.resource, use.guaranteed)} guaranteed"
            text += f", {format_amount(use.resource, use.borrowed)} borrowed)" if use.borrowed else ")"
        return text

    with services(database=database) as opened:
        tenants = list_tenants(opened)
    if as_json:
        print_json(tenants)
    else:
        print_table(
            ["TENANT", "VMS", "POOLS", "USED / LIMIT", "PREEMPTION", "CONTACT"],
            [
                (
                    *(one.tenant, one.vms, ", ".join(one.pools) or "-"),
                    *(tuple(map(shown, one.quotas)) or "-", describe_policy(one.policy), one.contact),
                )
                for one in tenants
            ],
            empty="no tenant yet: add one with `vgpuctl create-tenant NAME`",
        )
