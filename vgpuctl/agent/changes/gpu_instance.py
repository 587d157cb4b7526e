# SPDX-License-Identifier: Apache-2.0
"""Create and destroy MIG GPU instances (reference 5.2). They are named by profile and start: ids are the driver's."""

from collections import Counter
from typing import Any, List, Optional, Sequence, Tuple

from vgpuctl.agent.facts import mig, nvml_mig, pci
from vgpuctl.agent.facts.holders import OpenNodes
from vgpuctl.agent.facts.nvml_mig import NvmlInstance, NvmlMig
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml, required
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import GpuInstance, MigProfileFacts
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, CreateGpuInstance, DestroyGpuInstance


def ensure_created(host: Host, step: CreateGpuInstance, *, dry_run: bool) -> Change:
    """Create a GPU instance at a start, or as many as are missing to `count`, with the compute instances asked for.

    Raises Problem: `no-mig`, `mig-off`, `mig-profile-unknown`, `mig-bad-placement`, `mig-placement-taken`,
    `mig-instance-in-use`, `nvml-no-room` and others of NVML.
    """
    address = step.address
    pci.require(host, address)
    with required(host) as nvml:
        device = nvml.device(address)
        with nvml.refusals(f"reading MIG of {address}"):
            found = _read(nvml, device, address)
        if not found.current:
            raise Problem(ProblemCode.MIG_OFF, f"MIG of {address} is off", hint="switch it on first (mig.set-mode)")
        profile = _profile(found, step.profile, address)
        there = [one for one in found.instances if one.profile == profile.name]
        if step.start is not None:
            _check_start(found, profile, step.start, address)
            there = [one for one in there if one.start == step.start]
        missing = max((1 if step.start is not None else step.count) - len(there), 0)
        wanted = step.compute or ((profile.compute_slices,) if step.compute_instance else ())
        others = _with_other_compute(there, wanted, address)
        if step.start is None:  # whatever compute instances an earlier one has are as good
            others = [one for one in others if not one.compute]
        before = _said(step, len(there), there[0].compute if there else ())
        after = _said(step, len(there) + missing, wanted or (there[0].compute if there else ()))
        if not missing and not others:
            return Change(step.op, address, before, before, changed=False)
        if dry_run:
            return Change(step.op, address, before, after, changed=True)
        with nvml.refusals(f"creating the GPU instance {after} on {address}"):
            for instance in others:
                handle = nvml.library.nvmlDeviceGetGpuInstanceById(device, instance.id)
                _set_compute(host, nvml, handle, instance.compute, wanted)
            _create(host, nvml, device, profile, step, missing, wanted)
            found = _read(nvml, device, address)
    _check_created(step, found, len(there) + missing, wanted)
    return Change(step.op, address, before, after, changed=True)


def ensure_destroyed(host: Host, step: DestroyGpuInstance, *, dry_run: bool) -> Change:
    """Destroy the GPU instance at a start, or idle ones until `count` are left, with their idle compute instances.

    Raises Problem: `no-mig`, `mig-instance-differs`, `mig-instance-in-use` with who uses it, those of NVML.
    """
    address = step.address
    pci.require(host, address)
    nodes = OpenNodes(host)
    with required(host) as nvml:
        device = nvml.device(address)
        with nvml.refusals(f"reading MIG of {address}"):
            facts = mig.read(host, address, _read(nvml, device, address), nodes)
        there = [one for one in facts.instances if one.profile == step.profile]
        if step.start is not None:
            there = [one for one in facts.instances if one.start == step.start]
            if there and there[0].profile != step.profile:
                raise Problem(
                    ProblemCode.MIG_INSTANCE_DIFFERS,
                    f"at slot {step.start} of {address} is {there[0].profile}, not {step.profile}",
                )
        left = 0 if step.start is not None else step.count
        surplus = max(len(there) - left, 0)
        before, after = _said(step, len(there)), _said(step, len(there) - surplus)
        if not surplus:
            return Change(step.op, address, before, before, changed=False)
        idle = sorted((one for one in there if not one.in_use), key=lambda one: -one.start)
        if len(idle) < surplus:
            raise _in_use(address, [one for one in there if one.in_use])
        if dry_run:
            return Change(step.op, address, before, after, changed=True)
        for instance in idle[:surplus]:
            _destroy(host, nvml, device, address, instance)
        with nvml.refusals(f"reading MIG of {address}"):
            found = _read(nvml, device, address)
    _check_created(step, found, len(there) - surplus)
    return Change(step.op, address, before, after, changed=True)


def _read(nvml: Nvml, device: Any, address: str) -> NvmlMig:
    found = nvml_mig.read(nvml, device)
    if found is None:
        raise Problem(ProblemCode.NO_MIG, f"{address} has no MIG, or its driver does not tell")
    if found.problems:
        raise Problem(ProblemCode.MIG_UNREADABLE, f"{address}: {'; '.join(found.problems)}")
    return found


def _profile(found: NvmlMig, name: str, address: str) -> MigProfileFacts:
    for profile in found.profiles:
        if profile.name == name:
            return profile
    known = ", ".join(profile.name for profile in found.profiles) or "none"
    raise Problem(ProblemCode.MIG_PROFILE_UNKNOWN, f"{address} has no GPU instance profile {name}; it has: {known}")


def _check_start(found: NvmlMig, profile: MigProfileFacts, start: int, address: str) -> None:
    """Refuse a start that the profile has not, or that something else covers."""
    if profile.starts and start not in profile.starts:
        allowed = ", ".join(map(str, profile.starts))
        raise Problem(
            ProblemCode.MIG_BAD_PLACEMENT, f"{profile.name} on {address} can begin at {allowed}, not at {start}"
        )
    for one in found.instances:
        is_this = (one.profile, one.start) == (profile.name, start)
        if not is_this and one.start < start + profile.size and start < one.start + one.size:
            raise Problem(
                ProblemCode.MIG_PLACEMENT_TAKEN,
                f"{profile.name} at {start}:{profile.size} of {address} is taken by "
                f"{one.profile} at {one.start}:{one.size}",
                hint="destroy that GPU instance first, or choose another start",
            )


def _with_other_compute(there: Sequence[NvmlInstance], wanted: Sequence[int], address: str) -> List[NvmlInstance]:
    """Return the instances that have not the compute instances wanted. Raises Problem when one of them is in use.

    One with a vGPU in it stays as it is: its compute instances are made in the guest (reference 5.3).
    """
    others = [one for one in there if wanted and not one.vgpus and one.compute != tuple(wanted)]
    busy = [one for one in others if one.pids]
    if busy:
        named = ", ".join(f"{one.profile} at {one.start}:{one.size} (pids {one.pids})" for one in busy)
        raise Problem(ProblemCode.MIG_INSTANCE_IN_USE, f"compute instances of {address} are in use: {named}")
    return others


def _set_compute(host: Host, nvml: Nvml, handle: Any, before: Sequence[int], wanted: Sequence[int]) -> None:
    """Have other compute instances in a GPU instance; what was there comes back where they are refused."""
    host.writes += 1
    _destroy_compute(nvml, handle)
    try:
        for slices in wanted:
            nvml_mig.create_compute_instance(nvml, handle, slices)
    except nvml.library.NVMLError:
        _destroy_compute(nvml, handle)
        for slices in before:
            nvml_mig.create_compute_instance(nvml, handle, slices)
        raise


def _destroy_compute(nvml: Nvml, handle: Any) -> None:
    for compute, _ in nvml_mig.compute_instances(nvml, handle):
        nvml.library.nvmlComputeInstanceDestroy(compute)


def _create(
    host: Host,
    nvml: Nvml,
    device: Any,
    profile: MigProfileFacts,
    step: CreateGpuInstance,
    missing: int,
    wanted: Sequence[int],
) -> None:
    """Create what is missing, all or none. Raises NVMLError."""
    created: List[Any] = []
    try:
        for _ in range(missing):
            host.writes += 1
            handle = nvml_mig.create(nvml, device, profile, step.start)
            created.append(handle)
            for slices in wanted:
                nvml_mig.create_compute_instance(nvml, handle, slices)
    except nvml.library.NVMLError:
        for handle in reversed(created):
            _destroy_compute(nvml, handle)
            nvml.library.nvmlGpuInstanceDestroy(handle)
        raise


def _destroy(host: Host, nvml: Nvml, device: Any, address: str, instance: GpuInstance) -> None:
    library = nvml.library
    host.writes += 1
    try:
        with nvml.refusals(f"destroying {instance.profile} at {instance.start}:{instance.size} of {address}"):
            handle = library.nvmlDeviceGetGpuInstanceById(device, instance.id)
            _destroy_compute(nvml, handle)
            library.nvmlGpuInstanceDestroy(handle)
    except Problem as problem:
        if problem.code == ProblemCode.NVML_IN_USE:
            raise _in_use(address, [instance]) from problem
        raise


def _in_use(address: str, instances: Sequence[GpuInstance]) -> Problem:
    users: List[str] = []
    for one in instances:
        names = ", ".join(f"{holder.command}, pid {holder.pid}" for holder in one.holders)
        users.append(f"{one.profile} at {one.start}:{one.size} ({names or 'a vGPU, or a process without a name'})")
    return Problem(
        ProblemCode.MIG_INSTANCE_IN_USE,
        f"GPU instances of {address} are in use: {'; '.join(users)}",
        hint="stop the VMs or processes and delete the vGPUs in them first",
    )


def _check_created(
    step: "CreateGpuInstance | DestroyGpuInstance", found: NvmlMig, wanted: int, compute: Tuple[int, ...] = ()
) -> None:
    there = [
        one
        for one in found.instances
        if one.profile == step.profile and (step.start is None or one.start == step.start)
    ]
    has_other = any(compute and not one.vgpus and one.compute != compute for one in there)
    if len(there) != wanted or has_other:
        said = _said(step, len(there), there[0].compute if there else ())
        raise Problem(ProblemCode.READ_BACK_DIFFERS, f"{step.address} now has {said or 'no such GPU instance'}")


def _said(step: "CreateGpuInstance | DestroyGpuInstance", count: int, compute: Tuple[int, ...] = ()) -> Optional[str]:
    """Return what is there in words; compute instances only where they are parts of the GPU instance."""
    if step.start is None:
        return f"{count} x {step.profile}"
    parts = [f"{number} x {slices}c" for slices, number in Counter(compute).items() if len(compute) > 1]
    parts = parts or [f"{slices}c" for slices in compute if not step.profile.startswith(f"{slices}g.")]
    with_parts = f" with {' + '.join(parts)}" if parts else ""
    return f"{step.profile} at {step.start}{with_parts}" if count else None
