# SPDX-License-Identifier: Apache-2.0
"""list-vms: the store's VMs as they were last observed; no host is contacted without --refresh."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.listing import Column, Listing, ListOutput
from vgpuctl.cli.support.services import report_failures
from vgpuctl.cli.support.state_colours import colour_of_state
from vgpuctl.model.units import format_mib, parse_mib

if TYPE_CHECKING:
    from vgpuctl.model.lease import Lease
    from vgpuctl.model.licence import LicenceSeat
    from vgpuctl.model.vm import Vm, VmState
    from vgpuctl.usecases.support.observations import Observation
    from vgpuctl.usecases.vm.list_vms import ListedVm


class JsonVm(TypedDict):
    """A VM. declared: its state in the store; observed: the state that libvirt answered last, at observed_at.

    unknown_since, problem: of the last attempt that got no answer. shares: of each lease, its device as last observed.
    Times are seconds since the epoch, UTC.
    """

    vm: "Vm"
    leases: "Sequence[Lease]"
    declared: "VmState"
    observed: str | None
    observed_at: float | None
    unknown_since: float | None
    problem: str | None
    domain_name: str | None
    shares: "Sequence[Observation]"
    licence: "LicenceSeat | None"
    node_pool: str | None
    cluster: str | None


def _json(one: "ListedVm") -> JsonVm:
    return {
        "vm": one.vm,
        "leases": one.leases,
        "declared": one.vm.state,
        "observed": one.seen.state,
        "observed_at": one.seen.at,
        "unknown_since": one.seen.unknown_since,
        "problem": one.seen.problem,
        "domain_name": one.seen.name,
        "shares": one.shares,
        "licence": one.licence,
        "node_pool": one.node_pool,
        "cluster": one.cluster,
    }


def _state(one: "ListedVm") -> str:
    return one.state + (f": {one.vm.problem}" if one.vm.problem else "") + _notice(one.vm)


def _shares(one: "ListedVm") -> tuple[str, ...] | None:
    return tuple(map(_share, one.leases, one.shares)) or None


_LISTING: "Listing[ListedVm, JsonVm]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.vm.request.tenant),
        Column("VM", lambda one: one.vm.request.name),
        Column("STATE", _state, is_text=True, colour=lambda one: colour_of_state(_state(one))),
        Column("HOST", lambda one: one.vm.host),
        Column("VCPUS", lambda one: one.vm.request.vcpus, drops=2),
        Column(
            "MEMORY",
            lambda one: format_mib(one.vm.request.memory_mib),
            key=lambda one: one.vm.request.memory_mib,
            number=lambda text: parse_mib(text, what="--filter"),
            drops=2,
        ),
        Column("GPU SHARES", _shares, drops=1),
        Column("LICENCE", lambda one: None if one.licence is None else one.licence.pool, is_rare=True, drops=3),
        Column("NODE POOL", lambda one: one.node_pool, is_rare=True, drops=3),
        Column("CLUSTER", lambda one: one.cluster, is_rare=True, drops=4),
    ),
    name=lambda one: f"{one.vm.request.tenant}/{one.vm.request.name}",
    json=_json,
    empty="no VM yet: create one with `vgpuctl create-vm`",
)


@click.command("list-vms")
@options.tenant_filter
@click.option("--host", metavar="NAME", help="Only VMs on this host.")
@click.option("--node-pool", metavar="NAME", help="Only nodes of this pool; needs --tenant.")
@click.option("--refresh", is_flag=True, help="Ask the libvirt of their hosts for the present states first.")
@options.one_host
@options.forks
@_LISTING.options
def command(
    tenant: str | None, host: str | None, node_pool: str | None, refresh: bool, output: ListOutput, **where: Any
) -> None:
    """List the VMs of the store with their GPU shares.

    STATE is what libvirt answered when it was last asked, and how long ago; `unknown since` when the last attempt got
    no answer, and `declared` where the store wants another state. A share is marked `lost` when the host no longer has
    its device, and `taken` when something else holds it.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.vm.list_vms import list_vms, refresh_vms

    with services(**where) as opened:
        failures = refresh_vms(opened, tenant=tenant, host=host, node_pool=node_pool) if refresh else {}
        listed = _LISTING.show(output, lambda: list_vms(opened, tenant=tenant, host=host, node_pool=node_pool))
    report_failures(list(failures.items()), answered=len({one.vm.host for one in listed} - set(failures)))


def _share(lease: "Lease", seen: "Observation") -> str:
    wrong = f" ({seen.state})" if seen.state in ("lost", "taken") else ""
    return f"{lease.share.profile} {lease.share.function}{wrong}"


def _notice(vm: "Vm") -> str:
    from vgpuctl.model.times import format_time_to_second

    if vm.notice is None:
        return ""
    return f", is preempted by {vm.notice.cause} at {format_time_to_second(vm.notice.at)}"
