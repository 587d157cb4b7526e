# SPDX-License-Identifier: Apache-2.0
"""set-load-balancer: other VMs behind it, other checks of them."""

from dataclasses import replace

import click

from vgpuctl.cli.network.vpc_objects import change, changing
from vgpuctl.cli.support.numbers import WholeRange
from vgpuctl.errors import UsageError


@click.command("set-load-balancer")
@click.argument("name")
@click.option("--add-vm", "added", multiple=True, metavar="NAME", help="One more VM behind it, several times.")
@click.option("--remove-vm", "removed", multiple=True, metavar="NAME", help="A VM that leaves it, several times.")
@click.option("--vm-port", type=WholeRange(1, 65535), help="The port of its VMs.")
@click.option("--interval", type=WholeRange(1, 3600), help="Seconds between health checks.")
@click.option("--timeout", type=WholeRange(1, 3600), help="Seconds to wait for an answer.")
@click.option("--failures", type=WholeRange(1, 3600), help="Checks without answer for a dead VM.")
@changing
def command(
    name: str,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    vm_port: int | None,
    interval: int | None,
    timeout: int | None,
    failures: int | None,
    tenant: str,
    dry_run: bool,
    database: str | None,
    as_json: bool,
) -> None:
    """Change the VMs behind a load balancer and how they are checked; its address and what is not named stay.

    A VM that is behind it already, or not behind it, is no error. What a tenant's file says of it comes again with
    the file.
    """
    from vgpuctl.model.vpc import LoadBalancer
    from vgpuctl.usecases.network.vpc_commands import change_backends, change_object

    if not (added or removed or vm_port or interval or timeout or failures):
        raise UsageError("nothing to set", hint=f"vgpuctl set-load-balancer {name} --tenant {tenant} --add-vm web-3")
    if both := sorted({*added} & {*removed}):
        raise UsageError(f"{', '.join(both)} cannot be added and removed at once")

    def wanted(there: LoadBalancer) -> LoadBalancer:
        return replace(
            change_backends(there, add=added, remove=removed),
            vm_port=vm_port or there.vm_port,
            health_interval_s=interval or there.health_interval_s,
            health_timeout_s=timeout or there.health_timeout_s,
            health_failures=failures or there.health_failures,
        )

    change(
        lambda opened: change_object(opened, tenant, LoadBalancer, name, wanted, dry_run=dry_run),
        dry_run=dry_run,
        database=database,
        as_json=as_json,
        verb="changed",
    )
