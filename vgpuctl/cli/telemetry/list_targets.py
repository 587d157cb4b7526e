# SPDX-License-Identifier: Apache-2.0
"""list-targets: the targets that Prometheus can discover."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.lists.listing import Column, Listing, ListOutput
from vgpuctl.cli.options import options

if TYPE_CHECKING:
    from vgpuctl.usecases.telemetry.list_targets import TargetGroup


def _column(name: str, drops: int) -> "Column[TargetGroup]":
    return Column(name.upper(), lambda one: one["labels"].get(f"__meta_vgpuctl_{name}") or None, drops=drops)


_LISTING: "Listing[TargetGroup, TargetGroup]" = Listing(
    columns=(
        Column("TARGET", lambda one: one["targets"][0]),
        _column("role", 3),
        _column("tenant", 0),
        _column("vm", 0),
        _column("host", 1),
        _column("profile", 2),
    ),
    name=lambda one: one["targets"][0],
    in_order=True,
    json=lambda one: one,
    empty="no targets",
)


@click.command("list-targets")
@options.tenant_filter_of("Only what this tenant may scrape.")
@click.option(
    "--exporter",
    metavar="ADDRESS:PORT",
    default="127.0.0.1:9635",
    show_default=True,
    help="Exporter that serves the page of a tenant's shares.",
)
@_LISTING.options
@options.inventory
@options.limit
@options.database
def command(tenant: str | None, exporter: str, output: ListOutput, **where: Any) -> None:
    """List the targets for Prometheus: hosts to probe, exporters in guests. Exporters are those that their tenants
    allow.

    With --json it is the list that file_sd reads; the exporter serves the same at /sd/hosts and /sd/tenants/TENANT.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.telemetry.list_targets import list_targets

    with services(**where) as opened:
        _LISTING.show(output, lambda: list_targets(opened, tenant=tenant, exporter=exporter))
