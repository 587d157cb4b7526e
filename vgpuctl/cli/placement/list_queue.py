# SPDX-License-Identifier: Apache-2.0
"""list-queue: who waits, where, why and until when."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table, say

_COLUMNS = ("#", "TENANT", "VM", "GPU", "PRIORITY", "FOR", "WAITS", "EXPECTED START (UTC)")


@click.command("list-queue")
@options.tenant_filter
@options.inventory
@options.database
@options.as_json
def command(tenant: str | None, inventories: tuple[str, ...], database: str | None, as_json: bool) -> None:
    """List the VMs in the queue in their current order, with the reason and the expected start.

    The expected start follows from the declared ends (--for) of running VMs and of earlier entries; it is unknown
    where too few VMs have one. With an inventory, labels and maintenance count too. No host is contacted.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.times import format_duration, format_time
    from vgpuctl.usecases.placement.list_queue import list_queue

    with services(inventories=inventories, database=database) as opened:
        settings, queue = list_queue(opened, has_inventory=bool(inventories))
        now = opened.store.now()
    shown = [one for one in queue if tenant in (None, one.entry.request.tenant)]
    if as_json:
        print_json({"policy": settings.policy, "ageing_s": settings.ageing_s, "queue": shown})
        return
    has_nodes = any(one.node_pool for one in shown)
    say(f"policy {settings.policy}, ageing {format_duration(settings.ageing_s)}")
    print_table(
        [*_COLUMNS, *(["NODE POOL", "CLUSTER"] if has_nodes else []), "REASON"],
        [
            (
                one.position,
                one.entry.request.tenant,
                one.entry.vm_names,
                ", ".join(dict.fromkeys(gpu.text for vm in one.entry.requests for gpu in vm.gpus)) or "-",
                one.entry.priority,
                None if one.entry.duration_s is None else format_duration(one.entry.duration_s),
                format_duration(now - one.entry.queued_at),
                "not known" if one.expected_at is None else format_time(one.expected_at),
                *([one.node_pool, one.cluster] if has_nodes else []),
                one.entry.reason,
            )
            for one in shown
        ],
        empty="nobody waits",
    )
