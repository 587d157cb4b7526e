# SPDX-License-Identifier: Apache-2.0
"""create-tenant: add a tenant to the store."""

from typing import TypedDict

import click

from vgpuctl.cli.options import options, preempt_options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.cli.tenant import quota_options


class JsonTenantChange(TypedDict):
    """The tenant's name; changed: false if it was there already."""

    changed: bool
    tenant: str


_JSON: "JsonOutput[JsonTenantChange]" = JsonOutput()


@click.command("create-tenant")
@click.argument("name")
@click.option(
    "--quota",
    "limits",
    multiple=True,
    metavar="RESOURCE=AMOUNT",
    help=f"Limit of a resource; several times. Resources: {quota_options.UNITS}.",
)
@quota_options.guaranteed
@preempt_options.policy_flags
@click.option(
    "--pool", "pools", multiple=True, metavar="NAME", help="Grant a pool of hosts to the tenant; several times."
)
@options.database
@options.as_json
def command(
    name: str,
    limits: tuple[str, ...],
    guaranteed: tuple[str, ...],
    reclaim: str | None,
    preempt_mode: str | None,
    grace_s: int | None,
    pools: tuple[str, ...],
    database: str | None,
    as_json: bool,
) -> None:
    """Add a tenant with its quotas, preemption policy and pools.

    The same command again changes nothing; an existing tenant with other values is refused (see `vgpuctl set-quota`).
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.tenant.create_tenant import create_tenant

    with services(database=database) as opened:
        changed = create_tenant(
            opened,
            name,
            limits=quota_options.read_amounts(limits, what="--quota"),
            guaranteed=quota_options.read_amounts(guaranteed, what="--guaranteed"),
            pools=pools,
            policy=preempt_options.read_policy(reclaim, preempt_mode, grace_s),
        )
    if as_json:
        _JSON.print({"changed": changed, "tenant": name})
    else:
        say(f"tenant {name}: {'created' if changed else 'no change'}")
