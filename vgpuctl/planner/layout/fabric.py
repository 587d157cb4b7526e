# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager's mode on a host with NVSwitches: what the board can do, and the steps to the declared one."""

from collections.abc import Iterator

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, Holder, HostFacts
from vgpuctl.agent.wire.steps import RestartFabricManager, SetFabricMode, Step
from vgpuctl.catalog.entries import Board
from vgpuctl.model.layout import FabricMode, HostLayout
from vgpuctl.planner.layout.result import Difference, HostPlan, LayoutObstacle, Phase, PlannedStep
from vgpuctl.sharing.fabric import has_nvswitch
from vgpuctl.sharing.occupancy import describe_holders

_NVIDIA, _VOLTA = "10de", "Volta"
_MISSING = "install Fabric Manager in the driver's version; `vgpuctl check-hosts --prepare` names the packages"


def plan_fabric(layout: HostLayout, facts: HostFacts) -> HostPlan:
    """Write the mode, and restart Fabric Manager where it does not run with its configuration.

    A Fabric Manager that loses its mode under a VM takes the VM's NVLinks, so nothing is done, and nothing written,
    while a VM has one of the host's GPUs or a partition is active.
    """
    if layout.fabric is None:
        return HostPlan()
    if (unread := facts.why_unread("fabric_manager")) is not None:
        return HostPlan(notes=(f"Fabric Manager was not read: {unread}",))
    mode, origin = layout.fabric.mode, layout.place_of("fabric.mode")
    refusal = _refuse(mode, facts, origin)
    found = facts.fabric_manager
    if refusal is not None or found is None:
        return HostPlan(obstacles=(refusal,) if refusal else ())
    declared, differences, steps = _wanted(mode), [], []
    there = SetFabricMode(found.mode or 0, found.keeps_partitions)
    if found.mode != declared.mode or found.keeps_partitions != declared.keeps_partitions:
        differences.append(Difference(None, "fabric-mode", _in_words(declared), _in_words(there)))
        summary = f"write {_in_words(declared)} into Fabric Manager's configuration"
        steps.append(PlannedStep(Phase.HOST, declared, summary, undo=(there,)))
    if found.is_active is False:
        differences.append(Difference(None, "fabric-manager", "active", "not active"))
    elif found.needs_restart:
        told = "restart pending: its configuration was written after it was started"
        differences.append(Difference(None, "fabric-manager", "started with its configuration", told))
    if found.is_active is not None and differences:
        restart = RestartFabricManager()
        disrupts = "a restart of Fabric Manager interrupts the NVLinks of every GPU" if found.is_active else ""
        undo = (there, restart) if steps else ()
        what = "start" if found.is_active is False else "restart"
        summary = f"{what} Fabric Manager, so that it reads its configuration"
        steps.append(PlannedStep(Phase.HOST, restart, summary, undo=undo, disrupts=disrupts))
    # One that does not run loses nothing by a start with the mode that it had.
    is_mere_start = len(steps) == 1 and found.is_active is False and not found.needs_restart
    users = [] if not steps or is_mere_start else _users(facts)
    if users:
        reason = f"Fabric Manager cannot change its mode: {'; '.join(users)}"
        remedy = "move or stop the VMs, and deactivate their partitions"
        return HostPlan((), tuple(differences), (LayoutObstacle(None, "fabric-in-use", reason, remedy, origin),))
    return HostPlan(tuple(steps), tuple(differences))


def fabric_steps(layout: HostLayout, facts: HostFacts) -> list[Step]:
    """The steps that a boot takes; they change nothing where Fabric Manager started with its configuration."""
    found = facts.fabric_manager
    if layout.fabric is None or found is None:
        return []
    return [_wanted(layout.fabric.mode), *([RestartFabricManager()] if found.is_active is not None else [])]


def _wanted(mode: FabricMode) -> SetFabricMode:
    return SetFabricMode(mode.number, mode.has_partitions)


def _in_words(step: SetFabricMode) -> str:
    modes = {one.number: one for one in FabricMode}
    known = f"{modes[step.mode]} (" if step.mode in modes else "unknown ("
    return f"{known}FABRIC_MODE={step.mode}, FABRIC_MODE_RESTART={int(step.keeps_partitions)})"


def _refuse(mode: FabricMode, facts: HostFacts, origin: str) -> LayoutObstacle | None:
    """Why the host cannot have the mode at all."""
    gpus = [gpu for gpu in facts.gpus if gpu.vendor_id == _NVIDIA]
    if not any(has_nvswitch(gpu) or (facts.fabric_manager and _board_of(gpu) is None) for gpu in gpus):
        reason = f"the host cannot have the fabric mode {mode}: no GPU of it sits behind NVSwitches"
        return LayoutObstacle(None, "no-nvswitch", reason, "remove the key `fabric`", origin)
    missing = "Fabric Manager has no configuration there" if facts.fabric_manager is None else None
    if facts.fabric_manager is not None and facts.fabric_manager.is_active is None and facts.services is not None:
        missing = "systemd has no service of Fabric Manager there"
    if missing is not None:
        reason = f"the host cannot have the fabric mode {mode}: {missing}"
        return LayoutObstacle(None, "no-fabric-manager", reason, _MISSING, origin)
    old = {gpu.name or gpu.address for gpu in gpus if has_nvswitch(gpu) and _is_volta(gpu)}
    if mode is FabricMode.VGPU and old:
        reason = f"the host cannot have the fabric mode vgpu: HGX-2 with {', '.join(sorted(old))} has none"
        return LayoutObstacle(None, "fabric-mode-unsupported", reason, "declare shared or bare", origin)
    return None


def _users(facts: HostFacts) -> list[str]:
    """VMs with a GPU of NVIDIA's, and active partitions, in words."""
    found = [
        f"{place} is held by {describe_holders(holders)}"
        for gpu in facts.gpus
        if gpu.vendor_id == _NVIDIA
        for place, holders in _holders(gpu)
        if holders
    ]
    partitions = (facts.fabric_manager and facts.fabric_manager.partitions) or ()
    return found + [
        f"partition {one.number} is active (modules {', '.join(str(gpu.module) for gpu in one.gpus)})"
        for one in partitions
        if one.is_active
    ]


def _holders(gpu: Gpu) -> Iterator[tuple[str, tuple[Holder, ...]]]:
    yield gpu.address, gpu.holders
    for function in gpu.vfs:
        yield function.address, function.holders
    for mdev in gpu.mdevs:
        yield mdev.uuid, mdev.holders


def _board_of(gpu: Gpu) -> Board | None:
    return catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)


def _is_volta(gpu: Gpu) -> bool:
    board = _board_of(gpu)
    return "V100" in (gpu.name or "") if board is None else board.architecture == _VOLTA
