# SPDX-License-Identifier: Apache-2.0
"""create-pool, grant-pool, list-pools, show-pool, delete-pool: pools of hosts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.deletion import deletion_command
from vgpuctl.cli.forms.services import report_failures
from vgpuctl.cli.lists.listing import Column, Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.labelled import print_labelled
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.quota.pools import Pool
    from vgpuctl.usecases.found.deletion import Deletion
    from vgpuctl.usecases.tenant.show_pool import GpuOfPool, HostOfPool, ShownPool


class JsonPoolChange(TypedDict):
    """A pool of hosts; changed: false if nothing had to change."""

    changed: bool
    pool: "Pool"


_CHANGE: "JsonOutput[JsonPoolChange]" = JsonOutput(("create-", "grant-"))


@click.command("create-pool")
@click.argument("name")
@click.option(
    "--hosts",
    "pattern",
    required=True,
    metavar="PATTERN",
    help="Hosts of the pool, as for --limit: names, groups, globs, !not, &and.",
)
@options.inventory
@options.database
@options.as_json
def create_pool(name: str, pattern: str, inventories: tuple[str, ...], database: str | None, as_json: bool) -> None:
    """Create a pool of hosts that only tenants with a grant may use. A pool that exists gets these hosts.

    A host outside all pools serves every tenant. Running VMs stay where they are.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.tenant.pools import create_pool

    with services(inventories=inventories, database=database) as opened:
        pool, changed = create_pool(opened, name, pattern)
    if as_json:
        _CHANGE.print({"changed": changed, "pool": pool})
    else:
        say(f"host pool {name}: {', '.join(pool.hosts) if changed else 'no change'}")


@click.command("grant-pool")
@click.argument("pool")
@click.argument("tenants", nargs=-1, required=True, metavar="TENANT...")
@click.option("--revoke", is_flag=True, help="Revoke the grants; running VMs stay.")
@options.database
@options.as_json
def grant_pool(pool: str, tenants: tuple[str, ...], revoke: bool, database: str | None, as_json: bool) -> None:
    """Let tenants use the hosts of a pool, or revoke that."""
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.tenant.pools import grant_pool

    with services(database=database) as opened:
        there, changed = grant_pool(opened, pool, tenants, revoke=revoke)
    if as_json:
        _CHANGE.print({"changed": changed, "pool": there})
    else:
        say(f"host pool {pool}: {'for ' + (', '.join(there.tenants) or 'no tenant') if changed else 'no change'}")


_LISTING: "Listing[Pool, Pool]" = Listing(
    columns=(
        Column("POOL", lambda one: one.name),
        Column("HOSTS", lambda one: one.hosts or None),
        Column("TENANTS", lambda one: one.tenants or None),
    ),
    name=lambda one: one.name,
    json=lambda one: one,
    empty="no pool: every host serves every tenant",
)


@click.command("list-pools")
@options.database
@_LISTING.options
def list_pools(database: str | None, output: ListOutput) -> None:
    """List the pools with their hosts and the tenants that may use them."""
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.tenant.pools import list_pools

    with services(database=database) as opened:
        _LISTING.show(output, lambda: list_pools(opened))


_SHOWN: "JsonOutput[ShownPool]" = JsonOutput(("show-",))


@click.command("show-pool")
@click.argument("name")
@options.many_hosts
@options.refresh
@options.as_json
def show_pool(name: str, refresh: bool, as_json: bool, **where: Any) -> None:
    """Show one pool of hosts: its tenants, their VMs, its GPUs and memory. Of memory, what is used and what is free.

    Facts of hosts are those of the store; a host that was never read, or any with --refresh, is read now.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.tenant.show_pool import show_pool

    with services(**where) as opened:
        shown, failures = show_pool(opened, name, refresh=refresh)
    if as_json:
        _SHOWN.print(shown)
    else:
        _print(shown)
    report_failures(failures, answered=sum(one.problem is None for one in shown.hosts))


def _print(shown: "ShownPool") -> None:
    from vgpuctl.model.plural import counted
    from vgpuctl.model.units import format_mib

    pool = shown.pool
    gpus = sum(len(one.gpus) for one in shown.hosts)
    print_labelled("pool", [f"{pool.name}, {counted(len(pool.hosts), 'host')}, {counted(gpus, 'GPU')}"])
    print_labelled("tenants", [", ".join(pool.tenants) or "none granted"])
    print_labelled("VMs", [", ".join(_vms(shown)) or "none"])
    if shown.total_mib:
        used, free = format_mib(shown.used_mib), format_mib(shown.free_mib)
        print_labelled("memory", [f"{format_mib(shown.total_mib)}: {used} used, {free} free"])
    for one in shown.hosts:
        print_labelled("host", [f"{one.host}, {counted(one.vms, 'VM')}"])
        print_labelled("", list(_gpus(one)))


def _vms(shown: "ShownPool") -> Iterator[str]:
    for tenant, count in shown.vms.items():
        yield f"{count} of {tenant}" + ("" if tenant in shown.pool.tenants else " (no grant)")


def _gpus(host: "HostOfPool") -> Iterator[str]:
    for one in host.gpus:
        yield f"{one.gpu} {one.board}{_use(one)}"
    if host.problem is not None:
        yield f"GPUs are not known: {host.problem}"


def _use(one: "GpuOfPool") -> str:
    from vgpuctl.model.plural import counted
    from vgpuctl.model.units import format_mib

    free = (
        ""
        if one.free_mib is None or one.total_mib is None
        else (f", {format_mib(one.free_mib)} of {format_mib(one.total_mib)} free")
    )
    return f"{free}, {counted(one.shares, 'share')}" + ("" if one.closed is None else f", closed: {one.closed}")


def _deletion() -> "Deletion[Pool]":
    from vgpuctl.usecases.tenant.pools import DELETION

    return DELETION


delete_pool = deletion_command(
    "delete-pool",
    "Delete pools and their grants; their hosts then serve every tenant. VMs stay where they are.",
    _deletion,
    word="host pool",
    listed_by="list-pools",
    whose=" and open the hosts to every tenant",
)
