# SPDX-License-Identifier: Apache-2.0
"""A host compared with its declared layout: what plan-hosts would change or install there is a difference.

`compare_host` asks the host and its systemd about the files; `compare_facts` has what a reading found of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import AgentProblem
from vgpuctl.model.layout import HostLayout
from vgpuctl.planner.layout.fleet_values import FleetValues
from vgpuctl.planner.layout.manifest import manifest_after
from vgpuctl.planner.layout.plan import plan_host
from vgpuctl.planner.layout.result import HostPlan, LayoutObstacle, PlannedStep
from vgpuctl.sharing.kinds import existing_vgpus
from vgpuctl.usecases.declared.fleet_values import declared_values
from vgpuctl.usecases.declared.installs import BOOT_SUMMARY, PlannedInstall, certificates_of, files_of
from vgpuctl.usecases.declared.layout_promises import broken_promises
from vgpuctl.usecases.declared.layout_records import shares_made
from vgpuctl.usecases.declared.narrow_tunnels import narrow_tunnels
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class ComparedFiles:
    """A plan with the files of its layout. plan: a refusal of the host is one more obstacle.

    installs: files that differ. installed: declared ones that do not. later: what can be told only once the steps are
    taken.
    """

    plan: HostPlan
    installs: tuple[PlannedInstall, ...]
    installed: tuple[str, ...]
    later: tuple[str, ...]

    @property
    def differences(self) -> tuple[str, ...]:
        """The differences, the obstacles, and the files to be installed, in words."""
        return tuple(map(str, (*self.plan.differences, *self.plan.obstacles, *self.installs)))


def compare_files(
    services: Services,
    host: str,
    layout: HostLayout,
    facts: HostFacts,
    plan: HostPlan,
    fleet: FleetValues,
    steps: Sequence[PlannedStep],
    *,
    boot: bool = True,
) -> ComparedFiles:
    """Compare the files that a run would install after `steps`; of a plan that is refused only the certificate.

    boot: whether the layout is to be restored at boot.
    """
    later = plan.later
    installs = list(certificates_of(services, host, layout, fleet))
    if not plan.obstacles:
        manifest = manifest_after(layout, facts, [one.step for one in steps])
        installs += files_of(services, host, layout, facts, manifest, boot=boot)
        later += (BOOT_SUMMARY,) if boot and manifest is None else ()
    found, fine, obstacles = [], [], list(plan.obstacles)
    for one in installs:
        try:
            change = one.ensure(True)
        except AgentProblem as problem:
            obstacles.append(LayoutObstacle(None, str(problem.code), problem.message, problem.hint, layout.origin))
        else:
            found += [PlannedInstall(one.summary, change.before, change.after)] if change.changed else []
            fine += [one.summary] if one.is_declared and not change.changed else []
    return ComparedFiles(replace(plan, obstacles=tuple(obstacles)), tuple(found), tuple(fine), later)


def compare_host(
    services: Services, name: str, layout: HostLayout, facts: HostFacts, fleet: FleetValues, *, boot: bool = True
) -> ComparedFiles:
    """Compare a host that was just read, over its connection; nothing is written.

    fleet: the values of all hosts that must be unique. boot: whether the layout is to be restored at boot.
    """
    plan = plan_as_read(services, name, layout, facts, fleet.obstacles_of(name, layout, facts))
    return compare_files(services, name, layout, facts, plan, fleet, plan.steps, boot=boot)


class ComparedFacts(NamedTuple):
    """A host against its layout, in words. unread: declared settings that could not be looked at."""

    differences: tuple[str, ...]
    unread: tuple[str, ...]


def compare_facts(services: Services, name: str, layout: HostLayout, facts: HostFacts) -> ComparedFacts:
    """Differences and obstacles of a host by a reading of it; the host is not contacted.

    The content of OVN's certificate is not compared. Installed files that the reading has not count as a difference.
    """
    doubles = declared_values(services.inventory).obstacles_of(name, layout, None)
    plan = plan_as_read(services, name, layout, facts, doubles)
    installs: list[PlannedInstall | str | None] = []
    if facts.installed is None:
        installs = [f"{BOOT_SUMMARY}: not looked at: {facts.why_unread('installed') or 'an older vgpuctl read it'}"]
    elif not plan.obstacles:
        with services.store.reading() as session:
            ours = {one.share.vfio_device for one in session.leases(host=name)}
        ours |= {one.vfio_device for gpu in facts.gpus for one in existing_vgpus(gpu)}
        manifest = manifest_after(layout, facts, [one.step for one in plan.steps])
        files = files_of(services, name, layout, facts, manifest, boot=True)
        installs = [one.difference(facts.installed, ours) for one in files]
    return ComparedFacts(tuple(map(str, (*plan.differences, *plan.obstacles, *filter(None, installs)))), plan.notes)


def plan_as_read(
    services: Services, name: str, layout: HostLayout, facts: HostFacts, doubles: Sequence[LayoutObstacle]
) -> HostPlan:
    """Plan a host by a reading of it, with all that is in the way by the store: leases, reservations and promises.

    doubles: values of the host that another host of the fleet has too.
    """
    with services.store.reading() as session:
        leases, reserved = session.leases(host=name), session.reservations_on(name)
        broken = broken_promises(session, layout, facts, leases)
        doubles = [*doubles, *narrow_tunnels(session, layout)]
    made = shares_made(services, name, facts)
    return plan_host(layout, facts, leases, made, doubles=doubles, stranded=broken, reserved=reserved)
