# SPDX-License-Identifier: Apache-2.0
"""show-pool: one pool of hosts, who may use it and what is free."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.labelled import print_labelled
from vgpuctl.cli.support.services import report_failures

if TYPE_CHECKING:
    from vgpuctl.usecases.tenant.show_pool import GpuOfPool, HostOfPool, ShownPool

_JSON: "JsonOutput[ShownPool]" = JsonOutput()


@click.command("show-pool")
@click.argument("name")
@options.many_hosts
@options.refresh
@options.as_json
def command(name: str, refresh: bool, as_json: bool, **where: Any) -> None:
    """Show one pool of hosts: the tenants that may use it, their VMs, its GPUs, and the memory used and free.

    Facts of hosts are those of the store; a host that was never read, or any with --refresh, is read now.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.tenant.show_pool import show_pool

    with services(**where) as opened:
        shown, failures = show_pool(opened, name, refresh=refresh)
    if as_json:
        _JSON.print(shown)
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
