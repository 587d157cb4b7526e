# SPDX-License-Identifier: Apache-2.0
"""The calls of the protocol. The modules behind a call are imported on its first use, so the start is quick."""

from contextlib import nullcontext
from importlib import import_module
from typing import Any, Callable, Dict, List, Tuple, Type

from vgpuctl import __version__
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.cdi import SetContainerGpus
from vgpuctl.agent.wire.envelope import Problem, Reply, Request
from vgpuctl.agent.wire.fabric import ActivatePartition, DeactivatePartition, RestorePartitions
from vgpuctl.agent.wire.facts import Holder, HostFacts
from vgpuctl.agent.wire.flows import FlowCounts
from vgpuctl.agent.wire.guest_state import GuestState
from vgpuctl.agent.wire.image import ImageFile
from vgpuctl.agent.wire.network_function import SetNetworkFunction
from vgpuctl.agent.wire.packet_log import PacketLog
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import VGPU_STEPS, SetFunctionParams, SetVfParams, StopFunction
from vgpuctl.agent.wire.steps import (
    BindDriver,
    Change,
    CreateGpuInstance,
    DestroyGpuInstance,
    HashRom,
    ResetFunction,
    ResetGpu,
    RestartFabricManager,
    SetFabricMode,
    SetHeterogeneousMode,
    SetHugepages,
    SetMigMode,
    SetOvnChassis,
    SetOvnDaemon,
    SetServiceActive,
    SetUplinkBridge,
    SetVgpuScheduler,
    SetVirtualFunctions,
    Step,
    TakeOutUplink,
)
from vgpuctl.agent.wire.tuning import (
    KeepPowerLimit,
    SetComputeMode,
    SetEccMode,
    SetGpuClocks,
    SetMemoryClocks,
    SetPowerLimit,
)

RECORDED_CALLS = ("facts", "health", "diagnostics", "readings")
_INSTALLED = ("boot", "certificate", "textfile")
"""Calls that bring files of the host to what the request's field of the same name says."""
_TAKERS: Dict[Type[Step], str] = {
    SetVirtualFunctions: "sriov.ensure",
    SetVfParams: "sriov_admin.ensure",
    SetFunctionParams: "function_params.ensure",
    StopFunction: "function_params.stop",
    BindDriver: "driver.ensure",
    HashRom: "rom.ensure",
    ResetFunction: "reset.ensure",
    SetMigMode: "mig_mode.ensure",
    ResetGpu: "gpu_reset.ensure",
    CreateGpuInstance: "gpu_instance.ensure_created",
    DestroyGpuInstance: "gpu_instance.ensure_destroyed",
    SetHeterogeneousMode: "heterogeneous.ensure",
    SetVgpuScheduler: "scheduler.ensure",
    SetPowerLimit: "tuning.ensure_power_limit",
    SetGpuClocks: "tuning.ensure_clocks",
    SetMemoryClocks: "tuning.ensure_clocks",
    SetEccMode: "tuning.ensure_ecc",
    SetComputeMode: "tuning.ensure_compute_mode",
    KeepPowerLimit: "boot.ensure_kept_limit",
    SetServiceActive: "services.ensure",
    SetHugepages: "hugepages.ensure",
    SetFabricMode: "fabric_mode.ensure",
    RestartFabricManager: "fabric_mode.ensure_read",
    SetOvnDaemon: "ovn.ensure_daemon",
    SetOvnChassis: "ovn.ensure_chassis",
    SetUplinkBridge: "ovn.ensure_uplink",
    TakeOutUplink: "ovn.ensure_no_uplink",
    SetContainerGpus: "cdi.ensure",
    ActivatePartition: "partition.ensure_active",
    DeactivatePartition: "partition.ensure_inactive",
    RestorePartitions: "partition.ensure_restored",
    SetNetworkFunction: "network_function.ensure",
    # `mdev.create` is taken by changes/mdev.py, and so on.
    **{step: f"{step.op.partition('.')[0].replace('-', '_')}.ensure" for step in VGPU_STEPS},
}
"""Each step and the function of vgpuctl.agent.changes that takes it."""


def answer(host: Host, request: Request) -> Reply:
    """Do what a request asks; a Problem becomes part of the reply."""
    changes: List[Change] = []
    try:
        if request.call == "apply":
            apply(host, request.steps, changes, dry_run=request.dry_run)
        elif request.call in _INSTALLED:
            ensure = _function(f"changes.{request.call}.ensure")
            with nullcontext() if request.dry_run else host.lock():
                changes.append(ensure(host, getattr(request, request.call), dry_run=request.dry_run))
        found = {field: _READERS[field](host, request) for field in _ANSWERS.get(request.call, ())}
        return Reply(__version__, host.writes, changes=tuple(changes), **found)
    except Problem as problem:
        return Reply(__version__, host.writes, changes=tuple(changes), problem=problem)


def _function(name: str) -> Callable[..., Any]:
    """The function `room.module.function` of the agent; its module is imported at the first use."""
    module, _, function = name.rpartition(".")
    found: Callable[..., Any] = getattr(import_module(f"vgpuctl.agent.{module}"), function)
    return found


def read_facts(host: Host) -> HostFacts:
    """Read the whole host; without NVML where that cannot be used."""
    from vgpuctl.agent.facts import host_facts
    from vgpuctl.agent.nvml import Nvml

    nvml, problem = Nvml.open(host)
    with nvml if nvml is not None else nullcontext():
        return host_facts.read(host, nvml, problem)


def record(host: Host) -> str:
    """Read everything that commands read of a host, and return what the machine answered, in Base64."""
    from vgpuctl.agent.recording.host import recording_of

    recording = recording_of(host)
    for call in RECORDED_CALLS:
        # A refusal is an answer of the machine too, and stands in the recording.
        answer(recording, Request(call))
    return recording.packed()


def read_holders(host: Host, target: str) -> Tuple[Holder, ...]:
    """Return who holds a function (PCI address) or a mediated device (UUID). Raises Problem."""
    from vgpuctl.agent.facts import mdev, pci
    from vgpuctl.agent.facts.holders import OpenNodes

    if ":" in target:
        pci.require(host, target)
        return OpenNodes(host).holders_of_function(target)
    uuid = mdev.check_uuid(target)
    if mdev.read(host, uuid) is None:
        raise Problem(ProblemCode.NOT_FOUND, f"there is no mediated device {uuid} on this host")
    return OpenNodes(host).holders_of_mdev(uuid)


def apply(host: Host, steps: Tuple[Step, ...], changes: List[Change], *, dry_run: bool) -> None:
    """Take the steps in order under the host's lock and add what each did to `changes`. Raises Problem."""
    from vgpuctl.agent.changes import boot

    with nullcontext() if dry_run else host.lock():
        for step in steps:
            try:
                changes.append(take(host, step, dry_run=dry_run))
                if changes[-1].changed and not dry_run:
                    boot.note_share(host, step)
                    _note_functions(host, step)
            except Problem as problem:
                if not dry_run:
                    raise
                from vgpuctl.agent.changes import assumed

                change = assumed.change(step, problem, changes)
                if change is None:
                    raise
                changes.append(change)


def _note_functions(host: Host, step: Step) -> None:
    """Keep the notes about VFs true after a step."""
    from vgpuctl.agent.facts import vf_notes

    if isinstance(step, VGPU_STEPS) and step.made is not None:
        vf_notes.note_use(host, step.made[0])


def take(host: Host, step: Step, *, dry_run: bool) -> Change:
    """Take one step. nvidia-persistenced is stopped for a step that needs the card alone, and started afterwards."""
    cards = _needed_alone(step)
    if not cards or dry_run:
        return _take(host, step, dry_run=dry_run)
    from vgpuctl.agent.changes import persistence
    from vgpuctl.agent.facts import clock_notes

    is_unchanged = False
    try:
        if persistence.holds(host, cards) and _take(host, step, dry_run=True).changed:
            with persistence.paused(host, cards):
                return _take(host, step, dry_run=False)
        change = _take(host, step, dry_run=False)
        is_unchanged = not change.changed
        return change
    finally:
        # A step that failed may have taken the card from its driver before.
        if not is_unchanged:
            clock_notes.forget(host, cards)


def _needed_alone(step: Step) -> Tuple[str, ...]:
    """Functions that nobody may have open while the step is taken (reference 9, row 6)."""
    if isinstance(step, BindDriver):
        return step.addresses
    if isinstance(step, (SetVirtualFunctions, SetMigMode, ResetGpu, ResetFunction)):
        return (step.address,)
    return ()


def _take(host: Host, step: Step, *, dry_run: bool) -> Change:
    if type(step) not in _TAKERS:
        raise Problem(ProblemCode.UNKNOWN_STEP, f"the agent cannot take the step {step.op}")
    change: Change = _function(f"changes.{_TAKERS[type(step)]}")(host, step, dry_run=dry_run)
    return change


def _read_image(host: Host, request: Request) -> ImageFile:
    from vgpuctl.agent.facts import image

    return image.read(host, request.target or "", with_digest=request.with_digest)


def _count_flows(host: Host, request: Request) -> FlowCounts:
    from vgpuctl.agent.facts import flows

    assert request.counted is not None
    return flows.count(host, request.counted.cookies)


def _read_log(host: Host, request: Request) -> PacketLog:
    from vgpuctl.agent.facts import packet_log

    assert request.log is not None
    return packet_log.read(host, request.log.mark)


def _handle_state(host: Host, request: Request) -> GuestState:
    from vgpuctl.agent.changes import guest_state

    order = request.state
    assert order is not None
    with host.lock() if order.action.changes() else nullcontext():
        return guest_state.handle(host, order)


_ANSWERS = {
    "facts": ("facts",),
    "facts-and-health": ("facts", "health"),
    "health": ("health",),
    "diagnostics": ("diagnostics",),
    "readings": ("readings",),
    "holders": ("holders",),
    "image": ("image",),
    "tunnels": ("tunnels",),
    "functions": ("functions",),
    "guest-state": ("state",),
    "record": ("recording",),
    "compatibility": ("compatibility",),
    "flows": ("flows",),
    "packet-log": ("log",),
}
"""Each question and the fields of its reply, in the order in which they are read."""
_READERS: Dict[str, Callable[[Host, Request], Any]] = {
    "facts": lambda host, _request: read_facts(host),
    "health": lambda host, _request: _function("facts.health.read")(host),
    "diagnostics": lambda host, _request: _function("facts.diagnostics.read")(host),
    "readings": lambda host, _request: _function("readings.host.read")(host),
    "holders": lambda host, request: read_holders(host, request.target or ""),
    "image": _read_image,
    "tunnels": lambda host, _request: _function("facts.tunnels.probe")(host),
    "functions": lambda host, request: _function("facts.network_function.read")(host, request.target),
    "state": _handle_state,
    "recording": lambda host, _request: record(host),
    "compatibility": lambda host, request: _function("facts.nvml_migration.compare")(host, request.comparison),
    "flows": _count_flows,
    "log": _read_log,
}
"""Each field of a reply and what reads it."""
