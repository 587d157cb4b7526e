# SPDX-License-Identifier: Apache-2.0
"""What each call of the protocol does. The rooms behind a call are imported when it comes, so the start is quick."""

from contextlib import nullcontext
from typing import List, Tuple

from vgpuctl import __version__
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem, Reply, Request
from vgpuctl.agent.wire.facts import Holder, HostFacts
from vgpuctl.agent.wire.steps import (
    BindDriver,
    Change,
    CreateMdev,
    DeleteMdev,
    ResetFunction,
    SetVgpuType,
    SetVirtualFunctions,
    Step,
)


def answer(host: Host, request: Request) -> Reply:
    """Do what a request asks; a Problem becomes part of the reply."""
    changes: List[Change] = []
    try:
        if request.call == "facts":
            return Reply(__version__, host.writes, facts=read_facts(host))
        if request.call == "holders":
            return Reply(__version__, host.writes, holders=read_holders(host, request.target or ""))
        if request.call == "signs":
            from vgpuctl.agent.facts import signs

            return Reply(__version__, host.writes, signs=signs.read(host))
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


def read_holders(host: Host, target: str) -> Tuple[Holder, ...]:
    """Return who holds a function (PCI address) or a mediated device (UUID). Raises Problem."""
    from vgpuctl.agent.facts import mdev, pci
    from vgpuctl.agent.facts.holders import OpenNodes

    if ":" in target:
        pci.require(host, target)
        return OpenNodes(host).holders_of_function(target)
    uuid = mdev.check_uuid(target)
    if mdev.read(host, uuid) is None:
        raise Problem("not-found", f"there is no mediated device {uuid} on this host")
    return OpenNodes(host).holders_of_mdev(uuid)


def apply(host: Host, steps: Tuple[Step, ...], changes: List[Change], *, dry_run: bool) -> None:
    """Take the steps in order under the host's lock and add what each did to `changes`. Raises Problem."""
    with nullcontext() if dry_run else host.lock():
        for step in steps:
            try:
                changes.append(take(host, step, dry_run=dry_run))
            except Problem as problem:
                change = _assumed(step, problem, changes) if dry_run else None
                if change is None:
                    raise
                changes.append(change)


def take(host: Host, step: Step, *, dry_run: bool) -> Change:
    """Take one step."""
    if isinstance(step, SetVirtualFunctions):
        from vgpuctl.agent.changes import sriov

        return sriov.ensure(host, step, dry_run=dry_run)
    if isinstance(step, (CreateMdev, DeleteMdev)):
        from vgpuctl.agent.changes import mdev

        if isinstance(step, CreateMdev):
            return mdev.ensure_created(host, step, dry_run=dry_run)
        return mdev.ensure_deleted(host, step, dry_run=dry_run)
    if isinstance(step, SetVgpuType):
        from vgpuctl.agent.changes import vgpu_type

        return vgpu_type.ensure(host, step, dry_run=dry_run)
    if isinstance(step, BindDriver):
        from vgpuctl.agent.changes import driver

        return driver.ensure(host, step, dry_run=dry_run)
    if isinstance(step, ResetFunction):
        from vgpuctl.agent.changes import reset

        return reset.ensure(host, step, dry_run=dry_run)
    raise Problem("unknown-step", f"the agent cannot take the step {step.op}")


def _assumed(step: Step, problem: Problem, changes: List[Change]) -> "Change | None":
    """In a dry run, believe in VFs that an earlier step of the same run would bring."""
    brings_vfs = any(
        change.op == SetVirtualFunctions.op and change.changed and change.after != "0" for change in changes
    )
    if not brings_vfs or problem.code != "not-found":
        return None
    if isinstance(step, CreateMdev):
        return Change(step.op, step.uuid, None, f"{step.parent} {step.type_id}", changed=True)
    if isinstance(step, SetVgpuType):
        return Change(step.op, step.address, "0", step.type_id, changed=True)
    if isinstance(step, BindDriver):
        return Change(step.op, " ".join(step.addresses), None, step.driver, changed=True)
    return None
