# SPDX-License-Identifier: Apache-2.0
"""plan-hosts: what would bring every host into its declared layout, whom that disturbs, and how to roll it back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import InventoryError, LayoutDiffers, LayoutRefused
from vgpuctl.hosts.fleet import HostResult
from vgpuctl.model.layout import HostLayout
from vgpuctl.model.plural import counted
from vgpuctl.planner.layout.fleet_values import FleetValues
from vgpuctl.planner.layout.plan import leases_in_the_way, plan_host
from vgpuctl.planner.layout.result import HostPlan, PlannedStep, Stranded
from vgpuctl.planner.layout.selection import Selection, select_steps
from vgpuctl.usecases.declared.fleet_values import read_fleet_values
from vgpuctl.usecases.declared.installs import PlannedInstall
from vgpuctl.usecases.declared.layout_comparison import compare_files, compare_host
from vgpuctl.usecases.declared.layout_promises import broken_promises
from vgpuctl.usecases.declared.layout_records import PendingRestarts, pending_restarts, shares_made
from vgpuctl.usecases.declared.narrow_tunnels import narrow_tunnels
from vgpuctl.usecases.layout.returning import find_stranded
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class PlannedHost:
    """One host as it is and the way to its declared layout: everything that a run does on it, in its order.

    differences: as check-hosts and list-hosts count them: a VM that could not start again is none. installs: files that
    differ. installed: declared ones that do not. later: what can be told only once the steps are
    taken. restarts: services and VMs that an interrupted run stopped and that are to be started. stranded: GPUs that
    stay as they are, and why.
    """

    host: str
    layout: HostLayout
    facts: HostFacts
    plan: HostPlan
    differences: tuple[str, ...] = ()
    installs: tuple[PlannedInstall, ...] = ()
    installed: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    stranded: Mapping[str, Stranded] = field(default_factory=dict)
    restarts: PendingRestarts = field(default_factory=PendingRestarts)

    @property
    def is_done(self) -> bool:
        """True if a run would do nothing, and nothing differs."""
        return self.plan.is_in_layout and not self.installs and self.restarts == PendingRestarts()

    def refusal(self, chosen: Selection, *, is_planned: bool = True) -> LayoutRefused | LayoutDiffers | None:
        """Why a run that takes the chosen steps does not reach the layout; None where it does.

        is_planned: the steps are still to be taken.
        """
        reasons = [f"{one.gpu or 'host'}: {one.reason}" for one in chosen.refusals]
        reasons += [
            f"{one.gpu or 'host'}: {one.reason}" for one in self.plan.obstacles if one.gpu not in chosen.refused
        ]
        if reasons:
            verb = "would not be" if is_planned else "is not"
            return LayoutRefused(f"{self.host}: the declared layout {verb} reached", context=reasons)
        left = [str(one) for one in self.plan.differences if one.remedy is None]
        if left and not (is_planned and (chosen.steps or self.later)):
            return LayoutDiffers(f"{self.host}: not as declared", context=left)
        return None

    @property
    def dead_end(self) -> LayoutRefused | LayoutDiffers | None:
        """Why no run reaches the layout, whatever it is allowed; None where one does."""
        return self.refusal(select_steps(self.plan, may_disrupt=True, may_reset=True))


def plan_hosts(
    services: Services, layouts: Mapping[str, HostLayout], *, boot: bool = True
) -> list[HostResult[PlannedHost]]:
    """Read every host of `layouts` and plan it, in their order; nothing is written.

    boot: whether the layouts are to be restored at boot.
    """
    fleet = read_fleet_values(services)

    def work(name: str) -> PlannedHost:
        planned = read_and_plan(services, name, layouts[name], fleet)
        return with_installs(services, planned, fleet, planned.plan.steps, boot=boot)

    return services.on_hosts(list(layouts), work)


def with_installs(
    services: Services, planned: PlannedHost, fleet: FleetValues, steps: Sequence[PlannedStep], *, boot: bool = True
) -> PlannedHost:
    """The plan with the files that a run would install after `steps`.

    Of a plan that is refused only the certificate, which a run installs first. A refusal of the host is an obstacle.
    boot: whether the layout is to be restored at boot.
    """
    files = compare_files(services, planned.host, planned.layout, planned.facts, planned.plan, fleet, steps, boot=boot)
    found = files
    if planned.stranded:
        found = compare_host(services, planned.host, planned.layout, planned.facts, fleet, boot=boot)
    return replace(
        planned,
        plan=files.plan,
        differences=found.differences,
        installs=files.installs,
        installed=files.installed,
        later=files.later,
    )


def declared_layouts(services: Services) -> Mapping[str, HostLayout]:
    """The layout of every chosen host that has one; a mistake in any of them is found before a host is contacted."""
    names = services.hosts()
    found = {name: services.inventory.layout(name) for name in names}
    layouts = {name: layout for name, layout in found.items() if layout is not None}
    if not layouts:
        raise InventoryError(
            f"none of {counted(len(names), 'host')} has the variable vgpu",
            hint="declare it in group_vars or host_vars (docs/layout.md); certificates need `vgpu: {version: 1}`",
        )
    without = [name for name in names if name not in layouts]
    if without:
        services.say(f"without a layout, left alone: {', '.join(without)}")
    services.open_store()
    return layouts


def read_and_plan(
    services: Services,
    name: str,
    layout: HostLayout,
    fleet: FleetValues,
    *,
    after_boot: bool = False,
    stranded: Mapping[str, Stranded] = MappingProxyType({}),
) -> PlannedHost:
    """Read one host now and plan it. Shares that a boot took are not in the way of the layout.

    fleet: the values of all hosts that must be unique.
    after_boot: it was just booted, so that the boot took also what is promised and not noted as made.
    stranded: GPUs that stay as they are by an earlier plan of the same run.
    """
    facts = read_facts(services, name)
    with services.store.reading() as session:
        leases, reserved = session.leases(host=name), session.reservations_on(name)
        broken = broken_promises(session, layout, facts, leases)
        narrow = [] if after_boot else narrow_tunnels(session, layout)
    in_the_way = leases_in_the_way(layout, facts, leases, after_boot=after_boot)
    promised = {one.share.function for one in leases if one not in in_the_way}
    doubles = [*fleet.obstacles_of(name, layout, facts), *narrow]
    made = shares_made(services, name, facts)
    stranded = {**broken, **stranded}
    while True:
        plan = plan_host(layout, facts, in_the_way, made, promised, doubles, stranded, reserved)
        more = find_stranded(services, name, layout, facts, plan)
        if not more:
            restarts = pending_restarts(services, name)
            return PlannedHost(name, layout, facts, plan, restarts=restarts, stranded=stranded)
        stranded = {**more, **stranded}
