# SPDX-License-Identifier: Apache-2.0
"""list-targets: the targets that Prometheus can discover."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table


@click.command("list-targets")
@options.tenant_filter_of("Only what this tenant may scrape.")
@click.option(
    "--exporter",
    metavar="ADDRESS:PORT",
    default="127.0.0.1:9635",
    show_default=True,
    help="Exporter that serves the page of a tenant's shares.",
)
@options.as_json
@options.inventory
@options.limit
@options.database
def command(tenant: str | None, exporter: str, as_json: bool, **where: Any) -> None:
    """List the targets for Prometheus: hosts to probe, and exporters in guests that their tenants allow.

    With --json it is the list that file_sd reads; the exporter serves the same at /sd/hosts and /sd/tenants/TENANT.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.telemetry.list_targets import list_targets

    with services(**where) as opened:
        found = list_targets(opened, tenant=tenant, exporter=exporter)
    if as_json:
        print_json(found)
        return
    names = ("role", "tenant", "vm", "host", "profile")
    print_table(
        ("TARGET", *(name.upper() for name in names)),
        [(one["targets"][0], *(one["labels"].get(f"__meta_vgpuctl_{name}") or "-" for name in names)) for one in found],
        empty="no targets",
    )
