# SPDX-License-Identifier: Apache-2.0
"""set-quota: change what a tenant may use."""

from typing import TypedDict

import click

from vgpuctl.cli.options import options, preempt_options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.cli.tenant import quota_options
from vgpuctl.errors import UsageError


class JsonQuotaChange(TypedDict):
    """changed: false if nothing had to change. may_be_preempted: VMs that others may reclaim from now on."""

    changed: bool
    tenant: str
    may_be_preempted: list[str]


_JSON: "JsonOutput[JsonQuotaChange]" = JsonOutput()


@click.command("set-quota")
@click.argument("tenant")
@click.argument("limits", nargs=-1, metavar="[RESOURCE=AMOUNT]...")
@quota_options.guaranteed
@preempt_options.policy_flags
@options.dry_run
@options.database
@options.as_json
def command(
    tenant: str,
    limits: tuple[str, ...],
    guaranteed: tuple[str, ...],
    reclaim: str | None,
    preempt_mode: str | None,
    grace_s: int | None,
    dry_run: bool,
    database: str | None,
    as_json: bool,
) -> None:
    """Change the quotas and the preemption policy of a tenant. Other quotas stay; `none` removes one.

    Resources: vms, vcpus, memory (8GiB), cards (whole cards), framebuffer (96GiB), mig-compute (MIG compute slices),
    compute (compute time of whole GPUs: 2.5), gpu-hours (per calendar month), shares:PROFILE. Disks and networks: disk
    and snapshots (100GiB), iops and bandwidth (sums of the limits of disks, and of interfaces in Mbit/s), nics,
    networks, public-addresses, load-balancers, vpn-connections. Of each VM's disks, interfaces and vCPUs:
    each:disk-iops, each:disk-mbps, each:nic-mbps, each:cpu-limit (50%), each:cpu-weight; default:WHAT for VMs that ask
    for nothing.
    over-promise (allow, notify, limit, move, stop): what becomes of a VM that takes its neighbours' time.
    A limit below the use refuses more and takes nothing.
    --reclaim, --preempt and --grace set its preemption policy.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.tenant.set_quota import set_policy, set_quota

    policy = preempt_options.read_policy(reclaim, preempt_mode, grace_s)
    if not limits and not guaranteed and not policy:
        raise UsageError("nothing to set", hint=f"vgpuctl set-quota {tenant} framebuffer=96GiB vms=10")
    with (
        services(rehearses=dry_run, database=database) as opened,
        preempt_options.telling_exposed(opened, tenant) as exposed,
    ):
        changed = set_quota(
            opened,
            tenant,
            limits=quota_options.read_amounts(limits, what="quota"),
            guaranteed=quota_options.read_amounts(guaranteed, what="--guaranteed"),
        )
        has_policy = set_policy(opened, tenant, **policy)
    changed = changed or has_policy
    if as_json:
        names = [vm.request.name for vm in exposed]
        _JSON.print({"changed": changed, "tenant": tenant, "may_be_preempted": names})
    else:
        done = "would be set" if dry_run else "set"
        say(f"quota of {tenant}: {done if changed else 'no change'}")
