# SPDX-License-Identifier: Apache-2.0
"""plan-hosts: what would bring every host into its declared layout, whom that disturbs, and how to roll it back."""

from collections.abc import Mapping
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import InventoryError
from vgpuctl.hosts.fleet import HostResult
from vgpuctl.model.layout import HostLayout
from vgpuctl.planner.layout import HostPlan, leases_in_the_way, plan_host
from vgpuctl.planner.layout.fleet_values import FleetValues
from vgpuctl.usecases.support.fleet_values import read_fleet_values
from vgpuctl.usecases.support.layout_records import shares_made
from vgpuctl.usecases.support.observations import read_facts
from vgpuctl.usecases.support.services import Services


@dataclass(frozen=True)
class PlannedHost:
    """One host as it is and the way to its declared layout."""

    host: str
    layout: HostLayout
    facts: HostFacts
    plan: HostPlan


def plan_hosts(services: Services, layouts: Mapping[str, HostLayout]) -> list[HostResult[PlannedHost]]:
    """Read every host of `layouts` and plan it, in their order; nothing is written."""
    fleet = read_fleet_values(services)

    def work(name: str) -> PlannedHost:
        return read_and_plan(services, name, layouts[name], fleet)

    return services.on_hosts(list(layouts), work)


def declared_layouts(services: Services) -> Mapping[str, HostLayout]:
    """The layout of every chosen host that has one; a mistake in any of them is found before a host is contacted."""
    names = services.hosts()
    found = {name: services.inventory.layout(name) for name in names}
    layouts = {name: layout for name, layout in found.items() if layout is not None}
    if not layouts:
        raise InventoryError(
            f"none of the {len(names)} hosts has the variable vgpu",
            hint="declare it in group_vars or host_vars (docs/layout.md)",
        )
    without = [name for name in names if name not in layouts]
    if without:
        services.say(f"without a layout, left alone: {', '.join(without)}")
    services.open_store()
    return layouts


def read_and_plan(
    services: Services, name: str, layout: HostLayout, fleet: FleetValues, *, after_boot: bool = False
) -> PlannedHost:
    """Read one host now and plan it. Shares that a boot took are not in the way of the layout.

    fleet: the values of all hosts that must be unique.
    after_boot: it was just booted, so that the boot took also what is promised and not noted as made.
    """
    facts = read_facts(services, name)
    with services.store.reading() as session:
        leases = session.leases(host=name)
    in_the_way = leases_in_the_way(layout, facts, leases, after_boot=after_boot)
    promised = {one.share.function for one in leases if one not in in_the_way}
    doubles = fleet.obstacles_of(name, layout, facts)
    plan = plan_host(layout, facts, in_the_way, shares_made(services, name, facts), promised, doubles)
    return PlannedHost(name, layout, facts, plan)
