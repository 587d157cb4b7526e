# SPDX-License-Identifier: Apache-2.0
"""list-vms: the store's VMs as they were last observed; no host is contacted without --refresh."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table
from vgpuctl.cli.support.services import report_failures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vgpuctl.model.lease import Lease
    from vgpuctl.model.vm import Vm
    from vgpuctl.usecases.support.observations import Observation
    from vgpuctl.usecases.vm.list_vms import ListedVm


@click.command("list-vms")
@options.tenant_filter
@click.option("--host", metavar="NAME", help="Only VMs on this host.")
@click.option("--node-pool", metavar="NAME", help="Only nodes of this pool; needs --tenant.")
@click.option("--refresh", is_flag=True, help="Ask the libvirt of their hosts for the present states first.")
@options.one_host
@options.forks
@options.as_json
def command(
    tenant: str | None, host: str | None, node_pool: str | None, refresh: bool, as_json: bool, **where: Any
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
        listed = list_vms(opened, tenant=tenant, host=host, node_pool=node_pool)
    if as_json:
        print_json(
            [
                {
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
                for one in listed
            ]
        )
    else:
        _print(listed)
    report_failures(list(failures.items()), answered=len({one.vm.host for one in listed} - set(failures)))


def _print(listed: "Sequence[ListedVm]") -> None:
    from vgpuctl.model.units import format_mib

    counts_licences = any(one.licence for one in listed)
    has_nodes = any(one.node_pool for one in listed)
    of_some = [*(["LICENCE"] if counts_licences else []), *(["NODE POOL", "CLUSTER"] if has_nodes else [])]
    print_table(
        ["TENANT", "VM", "STATE", "HOST", "VCPUS", "MEMORY", "GPU SHARES", *of_some],
        [
            (
                one.vm.request.tenant,
                one.vm.request.name,
                one.state + (f": {one.vm.problem}" if one.vm.problem else "") + _notice(one.vm),
                one.vm.host,
                one.vm.request.vcpus,
                format_mib(one.vm.request.memory_mib),
                ", ".join(map(_share, one.leases, one.shares)) or "-",
                *([None if one.licence is None else one.licence.pool] if counts_licences else []),
                *([one.node_pool, one.cluster] if has_nodes else []),
            )
            for one in listed
        ],
        empty="no VM yet: create one with `vgpuctl create-vm`",
    )


def _share(lease: "Lease", seen: "Observation") -> str:
    wrong = f" ({seen.state})" if seen.state in ("lost", "taken") else ""
    return f"{lease.share.profile} {lease.share.function}{wrong}"


def _notice(vm: "Vm") -> str:
    from vgpuctl.model.times import format_time_to_second

    if vm.notice is None:
        return ""
    return f", is preempted by {vm.notice.cause} at {format_time_to_second(vm.notice.at)}"
