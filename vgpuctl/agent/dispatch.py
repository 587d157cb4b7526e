# SPDX-License-Identifier: Apache-2.0
"""The calls of the protocol. The modules behind a call are imported on its first use, so the start is quick."""

from contextlib import nullcontext
from typing import List, Tuple, Union

from vgpuctl import __version__
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem, Reply, Request
from vgpuctl.agent.wire.facts import Holder, HostFacts
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import VGPU_STEPS, VgpuStep
from vgpuctl.agent.wire.steps import (
    BindDriver,
    Change,
    CreateGpuInstance,
    DestroyGpuInstance,
    HashRom,
    ResetFunction,
    ResetGpu,
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

RECORDED_CALLS = ("facts", "health", "diagnostics", "readings")


def answer(host: Host, request: Request) -> Reply:
    """Do what a request asks; a Problem becomes part of the reply."""
    changes: List[Change] = []
    try:
        if request.call == "facts":
            return Reply(__version__, host.writes, facts=read_facts(host))
        if request.call == "holders":
            return Reply(__version__, host.writes, holders=read_holders(host, request.target or ""))
        if request.call == "boot" and request.boot is not None:
            from vgpuctl.agent.changes import boot

            with nullcontext() if request.dry_run else host.lock():
                changes.append(boot.ensure(host, request.boot, dry_run=request.dry_run))
        if request.call == "certificate" and request.certificate is not None:
            from vgpuctl.agent.changes import certificate

            with nullcontext() if request.dry_run else host.lock():
                changes.append(certificate.ensure(host, request.certificate, dry_run=request.dry_run))
        if request.call == "textfile" and request.textfile is not None:
            from vgpuctl.agent.changes import textfile

            with nullcontext() if request.dry_run else host.lock():
                changes.append(textfile.ensure(host, request.textfile, dry_run=request.dry_run))
        if request.call == "guest-state" and request.state is not None:
            from vgpuctl.agent.changes import guest_state

            with host.lock() if request.state.action.changes() else nullcontext():
                return Reply(__version__, host.writes, state=guest_state.handle(host, request.state))
        if request.call == "diagnostics":
            from vgpuctl.agent.facts import diagnostics

            return Reply(__version__, host.writes, diagnostics=diagnostics.read(host))
        if request.call in ("health", "facts-and-health"):
            from vgpuctl.agent.facts import health

            facts = read_facts(host) if request.call == "facts-and-health" else None
            return Reply(__version__, host.writes, facts=facts, health=health.read(host))
        if request.call == "readings":
            from vgpuctl.agent.readings import host as host_readings

            return Reply(__version__, host.writes, readings=host_readings.read(host))
        if request.call == "record":
            return Reply(__version__, host.writes, recording=record(host))
        if request.call == "tunnels":
            from vgpuctl.agent.facts import tunnels

            return Reply(__version__, host.writes, tunnels=tunnels.probe(host))
        if request.call == "image":
            from vgpuctl.agent.facts import image

            found = image.read(host, request.target or "", with_digest=request.with_digest)
            return Reply(__version__, host.writes, image=found)
        if request.call == "apply":
            apply(host, request.steps, changes, dry_run=request.dry_run)
        return Reply(__version__, host.writes, changes=tuple(changes))
    except Problem as problem:
        return Reply(__version__, host.writes, changes=tuple(changes), problem=problem)


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
    if cards and not dry_run:
        from vgpuctl.agent.changes import persistence

        if persistence.holds(host, cards) and _take(host, step, dry_run=True).changed:
            with persistence.paused(host, cards):
                return _take(host, step, dry_run=False)
    return _take(host, step, dry_run=dry_run)


def _needed_alone(step: Step) -> Tuple[str, ...]:
    """Functions that nobody may have open while the step is taken (reference 9, row 6)."""
    if isinstance(step, BindDriver):
        return step.addresses
    if isinstance(step, (SetVirtualFunctions, SetMigMode, ResetGpu, ResetFunction)):
        return (step.address,)
    return ()


def _take(host: Host, step: Step, *, dry_run: bool) -> Change:
    if isinstance(step, SetVirtualFunctions):
        from vgpuctl.agent.changes import sriov

        return sriov.ensure(host, step, dry_run=dry_run)
    if isinstance(step, VGPU_STEPS):
        return _take_on_vgpu(host, step, dry_run=dry_run)
    if isinstance(step, BindDriver):
        from vgpuctl.agent.changes import driver

        return driver.ensure(host, step, dry_run=dry_run)
    if isinstance(step, HashRom):
        from vgpuctl.agent.changes import rom

        return rom.ensure(host, step, dry_run=dry_run)
    if isinstance(step, ResetFunction):
        from vgpuctl.agent.changes import reset

        return reset.ensure(host, step, dry_run=dry_run)
    if isinstance(step, (SetMigMode, ResetGpu, CreateGpuInstance, DestroyGpuInstance)):
        return _take_on_mig(host, step, dry_run=dry_run)
    if isinstance(step, SetHeterogeneousMode):
        from vgpuctl.agent.changes import heterogeneous

        return heterogeneous.ensure(host, step, dry_run=dry_run)
    if isinstance(step, SetVgpuScheduler):
        from vgpuctl.agent.changes import scheduler

        return scheduler.ensure(host, step, dry_run=dry_run)
    if isinstance(step, SetServiceActive):
        from vgpuctl.agent.changes import services

        return services.ensure(host, step, dry_run=dry_run)
    if isinstance(step, SetHugepages):
        from vgpuctl.agent.changes import hugepages

        return hugepages.ensure(host, step, dry_run=dry_run)
    if isinstance(step, (SetOvnDaemon, SetOvnChassis, SetUplinkBridge, TakeOutUplink)):
        return _take_on_ovn(host, step, dry_run=dry_run)
    raise Problem(ProblemCode.UNKNOWN_STEP, f"the agent cannot take the step {step.op}")


def _take_on_vgpu(host: Host, step: VgpuStep, *, dry_run: bool) -> Change:
    """Take a step by the change module that its op names: `mdev.create` by changes/mdev.py."""
    from importlib import import_module

    module = import_module(f"vgpuctl.agent.changes.{step.op.partition('.')[0].replace('-', '_')}")
    change: Change = module.ensure(host, step, dry_run=dry_run)
    return change


def _take_on_ovn(
    host: Host, step: Union[SetOvnDaemon, SetOvnChassis, SetUplinkBridge, TakeOutUplink], *, dry_run: bool
) -> Change:
    from vgpuctl.agent.changes import ovn

    if isinstance(step, SetOvnDaemon):
        return ovn.ensure_daemon(host, step, dry_run=dry_run)
    if isinstance(step, SetOvnChassis):
        return ovn.ensure_chassis(host, step, dry_run=dry_run)
    if isinstance(step, TakeOutUplink):
        return ovn.ensure_no_uplink(host, step, dry_run=dry_run)
    return ovn.ensure_uplink(host, step, dry_run=dry_run)


def _take_on_mig(
    host: Host, step: Union[SetMigMode, ResetGpu, CreateGpuInstance, DestroyGpuInstance], *, dry_run: bool
) -> Change:
    if isinstance(step, SetMigMode):
        from vgpuctl.agent.changes import mig_mode

        return mig_mode.ensure(host, step, dry_run=dry_run)
    if isinstance(step, ResetGpu):
        from vgpuctl.agent.changes import gpu_reset

        return gpu_reset.ensure(host, step, dry_run=dry_run)
    from vgpuctl.agent.changes import gpu_instance

    if isinstance(step, CreateGpuInstance):
        return gpu_instance.ensure_created(host, step, dry_run=dry_run)
    return gpu_instance.ensure_destroyed(host, step, dry_run=dry_run)
