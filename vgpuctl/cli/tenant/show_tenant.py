# SPDX-License-Identifier: Apache-2.0
"""show-tenant: one tenant with all that it may use and has."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.labelled import print_labelled
from vgpuctl.cli.tenant.list_tenants import quota_text

if TYPE_CHECKING:
    from vgpuctl.usecases.placement.queue import Waiting
    from vgpuctl.usecases.tenant.show_tenant import LicencesOfTenant, NodePoolOfTenant, ShownTenant

_JSON: "JsonOutput[ShownTenant]" = JsonOutput()


@click.command("show-tenant")
@click.argument("name")
@options.inventory
@options.database
@options.as_json
def command(name: str, inventories: tuple[str, ...], database: str | None, as_json: bool) -> None:
    """Show one tenant: quotas, VMs, queue, networks, pools. Also its reservations and licences.

    With an inventory, labels and maintenance count for the expected start of queued VMs. No host is contacted.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.tenant.show_tenant import show_tenant

    with services(inventories=inventories, database=database) as opened:
        shown = show_tenant(opened, name, has_inventory=bool(inventories))
    if as_json:
        _JSON.print(shown)
    else:
        _print(shown)


def _print(shown: "ShownTenant") -> None:
    from vgpuctl.usecases.placement.reservations import describe
    from vgpuctl.usecases.tenant.set_quota import describe_policy

    one = shown.tenant
    print_labelled("tenant", [one.tenant + (f", contact {one.contact}" if one.contact else "")])
    print_labelled("preempt", [describe_policy(one.policy)])
    print_labelled("pools", [", ".join(one.pools) or "none granted"])
    print_labelled("quota", [quota_text(use) for use in one.quotas] or ["no limit"])
    print_labelled("VMs", [_counts(shown.vm_states) or "none"])
    print_labelled("queue", [_waiting(waiting) for waiting in shown.queue])
    print_labelled("reserved", [f"{each.name}: {describe(each)} on {each.host}" for each in shown.reservations])
    print_labelled(
        "network", [f"{each.name} {each.cidr} ({each.backend}), {each.free} free" for each in shown.networks]
    )
    print_labelled("node pool", [_nodes(pool) for pool in shown.node_pools])
    print_labelled("licences", [text for pool in shown.licences for text in _licences(pool)])


def _counts(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.items())


def _waiting(one: "Waiting") -> str:
    from vgpuctl.model.times import format_time

    expected = "" if one.expected_at is None else f", expected {format_time(one.expected_at)} UTC"
    reason = f": {one.entry.why}"
    return f"{one.position}. {one.entry.name}{expected}{reason}"


def _nodes(one: "NodePoolOfTenant") -> str:
    states = _counts({str(state): count for state, count in one.states.items()})
    return f"{one.name} of cluster {one.cluster}: {one.size} of {one.minimum} to {one.maximum} nodes" + (
        f", {states}" if states else ""
    )


def _licences(one: "LicencesOfTenant") -> Iterator[str]:
    from vgpuctl.model.plural import counted

    yield f"{counted(one.seats, 'seat')} of {one.pool} ({one.edition})"
    if one.waiting:
        yield f"{', '.join(one.waiting)}: waits for a seat of {one.pool}"
