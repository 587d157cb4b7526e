# SPDX-License-Identifier: Apache-2.0
"""create-host-pool, grant-host-pool, list-host-pools, show-host-pool, delete-host-pool: pools of hosts."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.services import report_failures
from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.lists.listing import Column, Listing
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.labelled import print_labelled

if TYPE_CHECKING:
    from vgpuctl.quota.host_pools import HostPool
    from vgpuctl.usecases.found.deletion import Deletion
    from vgpuctl.usecases.running.services import Services
    from vgpuctl.usecases.tenant.show_host_pool import GpuOfHostPool, HostOfHostPool, ShownHostPool

_POOLS: "StoredKind[HostPool]" = StoredKind("host pool", "list-host-pools", "pool")


@_POOLS.changes(lambda pool: ", ".join(pool.hosts), is_new=True)
@click.option(
    "-l",
    "--hosts",
    "pattern",
    required=True,
    metavar="PATTERN",
    help="Hosts of the pool, as for --limit: names, groups, globs, !not, &and.",
)
@options.inventory
def create_host_pool(opened: "Services", name: str, pattern: str) -> "tuple[HostPool, bool]":
    """Create a pool of hosts that only tenants with a grant may use. A pool that exists gets these hosts.

    A host outside all pools serves every tenant. Running VMs stay where they are.
    """
    from vgpuctl.usecases.tenant.host_pools import create_host_pool

    return create_host_pool(opened, name, pattern)


@_POOLS.changes(lambda pool: f"for {', '.join(pool.tenants) or 'no tenant'}", metavar="POOL")
@click.argument("tenants", nargs=-1, required=True, metavar="TENANT...")
@click.option("--revoke", is_flag=True, help="Revoke the grants; running VMs stay.")
def grant_host_pool(opened: "Services", name: str, tenants: tuple[str, ...], revoke: bool) -> "tuple[HostPool, bool]":
    """Let tenants use the hosts of a pool, or revoke that."""
    from vgpuctl.usecases.tenant.host_pools import grant_host_pool

    return grant_host_pool(opened, name, tenants, revoke=revoke)


_LISTING: "Listing[HostPool, HostPool]" = Listing(
    columns=(
        Column("POOL", lambda one: one.name),
        Column("HOSTS", lambda one: one.hosts or None),
        Column("TENANTS", lambda one: one.tenants or None),
    ),
    name=lambda one: one.name,
    json=lambda one: one,
    empty="no pool: every host serves every tenant",
)


@_POOLS.lists(_LISTING)
def list_host_pools(opened: "Services") -> "Sequence[HostPool]":
    """List the pools with their hosts and the tenants that may use them."""
    from vgpuctl.usecases.tenant.host_pools import list_host_pools

    return list_host_pools(opened)


_SHOWN: "JsonOutput[ShownHostPool]" = JsonOutput(("show-",))


@click.command("show-host-pool")
@_POOLS.argument("name")
@options.many_hosts
@options.refresh
@options.as_json
def show_host_pool(name: str, refresh: bool, as_json: bool, **where: Any) -> None:
    """Show one pool of hosts: its tenants, their VMs, its GPUs and memory. Of memory, what is used and what is free.

    Facts of hosts are those of the store; a host that was never read, or any with --refresh, is read now.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.tenant.show_host_pool import show_host_pool

    with services(**where) as opened:
        shown, failures = show_host_pool(opened, name, refresh=refresh)
    if as_json:
        _SHOWN.print(shown)
    else:
        _print(shown)
    report_failures(failures, answered=sum(one.problem is None for one in shown.hosts))


def _print(shown: "ShownHostPool") -> None:
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


def _vms(shown: "ShownHostPool") -> Iterator[str]:
    for tenant, count in shown.vms.items():
        yield f"{count} of {tenant}" + ("" if tenant in shown.pool.tenants else " (no grant)")


def _gpus(host: "HostOfHostPool") -> Iterator[str]:
    for one in host.gpus:
        yield f"{one.gpu} {one.board}{_use(one)}"
    if host.problem is not None:
        yield f"GPUs are not known: {host.problem}"


def _use(one: "GpuOfHostPool") -> str:
    from vgpuctl.model.plural import counted
    from vgpuctl.model.units import format_mib

    free = (
        ""
        if one.free_mib is None or one.total_mib is None
        else (f", {format_mib(one.free_mib)} of {format_mib(one.total_mib)} free")
    )
    return f"{free}, {counted(one.shares, 'share')}" + ("" if one.closed is None else f", closed: {one.closed}")


@_POOLS.deletes(whose=" and open the hosts to every tenant")
def delete_host_pool() -> "Deletion[HostPool]":
    """Delete pools and their grants; their hosts then serve every tenant. VMs stay where they are."""
    from vgpuctl.usecases.tenant.host_pools import DELETION

    return DELETION
