# SPDX-License-Identifier: Apache-2.0
"""The layout of the host around its GPUs: kernel arguments, huge pages, uplinks, Fabric Manager, services."""

from collections.abc import Sequence

from vgpuctl.agent.wire.facts import HostFacts, ServiceFacts
from vgpuctl.agent.wire.steps import SetHugepages, SetServiceActive
from vgpuctl.model.guest_memory import format_page_size
from vgpuctl.model.layout import HostLayout, LayoutKind
from vgpuctl.planner.layout.fabric import plan_fabric
from vgpuctl.planner.layout.network import plan_network
from vgpuctl.planner.layout.result import Difference, HostPlan, LayoutObstacle, Phase, PlannedStep

VGPU_MANAGER = "nvidia-vgpu-mgr.service"


def plan_around(layout: HostLayout, facts: HostFacts, doubles: Sequence[LayoutObstacle] = ()) -> HostPlan:
    """Differences and steps that belong to no GPU, without services. doubles: as for plan_network."""
    around = (_kernel_arguments(layout, facts), _hugepages(layout, facts), _uplinks(layout, facts))
    parts = (*around, plan_fabric(layout, facts), plan_network(layout, facts, doubles))
    return HostPlan(
        steps=tuple(step for part in parts for step in part.steps),
        differences=tuple(difference for part in parts for difference in part.differences),
        obstacles=tuple(obstacle for part in parts for obstacle in part.obstacles),
        later=tuple(text for part in parts for text in part.later),
        notes=tuple(note for part in parts for note in part.notes),
    )


def plan_services(layout: HostLayout, facts: HostFacts, gpu_steps: Sequence[PlannedStep]) -> HostPlan:
    """Stop the declared services that run, where a step needs the driver alone, and start them again after it.

    The vGPU manager must run for vGPUs (reference 9, row 20); a host without it has no vGPU driver, which is not ours
    to fix.
    """
    steps: list[PlannedStep] = []
    differences: list[Difference] = []
    running = {service.name for service in facts.services or () if service.active}
    kinds = {entry.layout.kind for entry in layout.gpus}
    if kinds & {LayoutKind.VGPU, LayoutKind.MIG_VGPU} and ServiceFacts(VGPU_MANAGER, False) in (facts.services or ()):
        differences.append(Difference(None, "service", f"{VGPU_MANAGER} active", "not active"))
        start, stop = SetServiceActive(VGPU_MANAGER, True), SetServiceActive(VGPU_MANAGER, False)
        steps.append(PlannedStep(Phase.HOST, start, f"start {VGPU_MANAGER}", undo=(stop,)))
    if not layout.stop_services or not any(planned.phase.needs_driver_alone() for planned in gpu_steps):
        return HostPlan(tuple(steps), tuple(differences))
    if facts.services is None:
        note = f"whether {', '.join(layout.stop_services)} run was not read, so they are not stopped"
        return HostPlan(tuple(steps), tuple(differences), notes=(note,))
    stopped = [name for name in layout.stop_services if name in running]
    for phase, names, active in ((Phase.STOP_SERVICES, stopped, False), (Phase.START_SERVICES, stopped[::-1], True)):
        for name in names:
            verb = "start" if active else "stop"
            undo = (SetServiceActive(name, not active),)
            steps.append(PlannedStep(phase, SetServiceActive(name, active), f"{verb} {name}", undo=undo))
    return HostPlan(tuple(steps), tuple(differences))


def _kernel_arguments(layout: HostLayout, facts: HostFacts) -> HostPlan:
    if layout.kernel_arguments and facts.why_unread("kernel_command_line") is not None:
        return HostPlan(notes=("the kernel's command line was not read",))
    present = set(facts.kernel_command_line.split())
    missing = [argument for argument in layout.kernel_arguments if argument not in present]
    remedy = "add it to the boot loader's configuration and reboot"
    return HostPlan(
        differences=tuple(Difference(None, "kernel-argument", one, _same_name(one, present), remedy) for one in missing)
    )


def _same_name(argument: str, present: set[str]) -> str:
    name = argument.partition("=")[0]
    alike = sorted(one for one in present if one.partition("=")[0] == name)
    return ", ".join(alike) or "missing"


def _hugepages(layout: HostLayout, facts: HostFacts) -> HostPlan:
    if not layout.hugepages:
        return HostPlan()
    if facts.hugepages is None:
        return HostPlan(notes=("the pools of huge pages were not read",))
    pools = {pool.size_kib: pool for pool in facts.hugepages}
    steps: list[PlannedStep] = []
    differences: list[Difference] = []
    obstacles: list[LayoutObstacle] = []
    for size_kib, count in layout.hugepages:
        size, pool = format_page_size(size_kib), pools.get(size_kib)
        if pool is None:
            offered = ", ".join(format_page_size(one) for one in sorted(pools)) or "none"
            reason = f"the kernel has no huge pages of {size}; it has {offered}"
            obstacles.append(LayoutObstacle(None, "no-such-hugepages", reason, origin=layout.origin))
            continue
        if pool.total == count:
            continue
        differences.append(Difference(None, "hugepages", f"{count} of {size}", str(pool.total)))
        if count < pool.total - pool.free:
            reason = f"{pool.total - pool.free} huge pages of {size} are in use, the layout has {count}"
            obstacles.append(
                LayoutObstacle(None, "hugepages-in-use", reason, "stop the VMs that use them", layout.origin)
            )
            continue
        step, undo = SetHugepages(size_kib, count), SetHugepages(size_kib, pool.total)
        summary = f"have {count} huge pages of {size} (now {pool.total})"
        steps.append(PlannedStep(Phase.HOST, step, summary, undo=(undo,)))
    return HostPlan(tuple(steps), tuple(differences), tuple(obstacles))


def _uplinks(layout: HostLayout, facts: HostFacts) -> HostPlan:
    if not layout.uplinks:
        return HostPlan()
    if facts.network_interfaces is None:
        return HostPlan(notes=("the network interfaces were not read",))
    return HostPlan(
        differences=tuple(
            Difference(None, "uplink", f"{network} on {interface}", "no such interface", "name another interface")
            for network, interface in layout.uplinks
            if interface not in facts.network_interfaces
        )
    )
