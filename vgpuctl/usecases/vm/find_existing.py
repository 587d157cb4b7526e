# SPDX-License-Identifier: Apache-2.0
"""VMs that exist already with the wanted specifications, so that the same create-vm again changes nothing."""

import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace

from vgpuctl.errors import StateError, VmDiffers
from vgpuctl.model.units import exact_mib
from vgpuctl.model.vgpu_params import show_vgpu_param
from vgpuctl.model.vm import VmRequest, VmState
from vgpuctl.quota.ceilings import as_there
from vgpuctl.quota.resources import Limited
from vgpuctl.quota.vm_limits import changed_limits, is_first, resize_words, with_limit
from vgpuctl.sharing.partition_rules import told_partition
from vgpuctl.specs.vm import list_differences
from vgpuctl.usecases.found.registered_images import refuse_unregistered
from vgpuctl.usecases.observed.observations import describe_state, observations
from vgpuctl.usecases.placement.named_things import refuse_unknown_references
from vgpuctl.usecases.running.operations import refuse_unsettled, refuse_while_busy
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.created_vm import CreatedVm


# The resize-vm command that brings a VM into another size, for hints.
def resize_command(there: VmRequest, wanted: VmRequest) -> str | None:
    """`vgpuctl resize-vm acme/web --vcpus 4`; None when nothing differs that it changes."""
    changes = []
    if there.vcpus != wanted.vcpus:
        changes += ["--vcpus", str(wanted.vcpus)]
    if there.memory_mib != wanted.memory_mib:
        changes += ["--memory", str(exact_mib(wanted.memory_mib))]
    if there.gpus != wanted.gpus:
        changes += [word for gpu in wanted.gpus for word in ("--gpu", gpu.text)] or ["--gpu", "none"]
    if there.vgpu_params != wanted.vgpu_params:
        params = map(show_vgpu_param, wanted.vgpu_params)
        changes += [word for param in params for word in ("--vgpu-param", param)] or ["--vgpu-param", "none"]
    if there.max_downtime_s != wanted.max_downtime_s:
        limit_s = wanted.max_downtime_s
        changes += ["--max-downtime", "none" if limit_s is None else f"{limit_s:.15g}s"]
    changes += resize_words(there, wanted)
    if not changes:
        return None
    return shlex.join(["vgpuctl", "resize-vm", f"{wanted.tenant}/{wanted.name}", *changes])


def find_existing(
    services: Services,
    requests: Sequence[VmRequest],
    *,
    is_reserved: bool = False,
    written: Collection[str] | None = None,
) -> tuple[CreatedVm, ...] | None:
    """All of these VMs if they exist with the same specifications; None if none of them exists.

    is_reserved: their time and host follow from a reservation, and are not compared. written: as in CreateOptions.
    Raises what refuse_unknown_references raises, NotFound for the tenant, VmDiffers, and StateError when only some of
    them exist or an earlier run did not finish.
    """
    there = [_find(services, request, is_reserved=is_reserved, written=written) for request in requests]
    existing = tuple(one for one in there if one is not None)
    if not existing or len(existing) == len(requests):
        return existing or None
    names = ", ".join(one.vm.request.name for one in existing)
    missing = ", ".join(request.name for request, one in zip(requests, there, strict=True) if one is None)
    raise StateError(
        f"of the VMs to create together {names} {'is' if len(existing) == 1 else 'are'} there already",
        hint=f"delete them, or create the rest ({missing}) without --gang",
    )


def _find(
    services: Services, request: VmRequest, *, is_reserved: bool, written: Collection[str] | None
) -> CreatedVm | None:
    with services.store.reading() as session:
        session.tenant(request.tenant)
        refuse_unregistered(session, request)
        vm = session.vm(request.tenant, request.name)
        if vm is None:
            refuse_unknown_references(session, request)
            return None
        request = as_there(request, vm.request)
        leases = session.leases(vm_uuid=vm.uuid)
        state = describe_state(vm, observations(session, [vm])[vm.uuid], session.now())
        known = session.facts(vm.host)
    if is_reserved:
        request = replace(request, duration_s=vm.request.duration_s, host=vm.request.host)
    differences = list_differences(vm.request, request)
    if differences:
        raise VmDiffers(
            f"VM {request.name} of tenant {request.tenant} exists on {vm.host} with another specification",
            context=differences,
            hint=_hint(vm.request, request, written),
        )
    if vm.state not in (VmState.RUNNING, VmState.STOPPED):
        refuse_while_busy(services, vm)
        reason = vm.problem or "an earlier run did not finish"
        raise StateError(
            f"VM {request.name} of tenant {request.tenant} is {vm.state}: {reason}",
            hint="run `vgpuctl repair`, then this command again",
        )
    refuse_unsettled(services, vm)
    partition, _problem = told_partition((one.share for one in leases), None if known is None else known.facts)
    return CreatedVm(vm, tuple(leases), changed=False, state=state, partition=partition)


_CHANGED_BY = {
    "disk.size": "`vgpuctl resize-disk`",
    "data_disks": "`vgpuctl attach-disk`, `detach-disk` and `resize-disk`",
    "labels": "`vgpuctl label-vm`",
    "nics": "`vgpuctl attach-nic` and `detach-nic`",
    "network": "`vgpuctl attach-nic` and `detach-nic`",
    "display.kind": "`vgpuctl set-console`",
    "display.video": "`vgpuctl set-console`",
    "display.vgpu": "`vgpuctl set-console`",
    "install": "`vgpuctl eject-iso`",
    "install.iso": "`vgpuctl eject-iso`",
    "install.drivers": "`vgpuctl eject-iso`",
}
"""The commands that change a field of a VM that exists, beside resize-vm."""


_RESIZED = {
    "vcpus": "vcpus",
    "memory": "memory_mib",
    "gpus": "gpus",
    "vgpu_params": "vgpu_params",
    "max_downtime": "max_downtime_s",
}
"""What resize-vm changes: the field, and where a VmRequest has it."""

_LIMITS = {
    "cpu_limit": Limited.CPU_LIMIT,
    "cpu_weight": Limited.CPU_WEIGHT,
    "disk.iops": Limited.DISK_IOPS,
    "disk.mbps": Limited.DISK_MBPS,
    "bandwidth_mbps": Limited.NIC_MBPS,
}
"""Fields of limits that resize-vm changes too. Those of further disks and interfaces are part of the fields below."""

_PARTS = {"data_disks": (Limited.DISK_IOPS, Limited.DISK_MBPS), "nics": (Limited.NIC_MBPS,)}


def _limited(there: VmRequest, wanted: VmRequest, written: Collection[str] | None) -> VmRequest:
    """The VM with the wanted limits of the fields that were written."""
    firsts = {one for key, one in _LIMITS.items() if written is None or key in written}
    others = {one for key, names in _PARTS.items() if written is None or key in written for one in names}
    for name, part, value in changed_limits(there, wanted):
        if name in (firsts if is_first(part) else others):
            there = with_limit(there, name, part, value)
    return there


def _hint(there: VmRequest, wanted: VmRequest, written: Collection[str] | None) -> str:
    """The commands that bring the VM into the wanted shape, and what no command changes. A default is no wish."""
    sizes = {path: getattr(wanted, path) for key, path in _RESIZED.items() if written is None or key in written}
    keeps_limit = written is None and wanted.max_downtime_s is None
    if keeps_limit:
        del sizes["max_downtime_s"]
    limited = _limited(there, wanted, written)
    command = resize_command(there, replace(limited, **sizes))
    fields = [line.partition(":")[0] for line in list_differences(limited, wanted)]
    fields = [one for one in fields if one not in _RESIZED and (written is None or one in written)]
    hints = [] if command is None else [f"resize it: {command}"]
    if keeps_limit and there.max_downtime_s is not None:
        lifted = resize_command(there, replace(there, max_downtime_s=None))
        hints.append(f"write `max_downtime: {there.max_downtime_s:.15g}s` to keep that limit, or lift it: {lifted}")
    commands = dict.fromkeys(_CHANGED_BY[field] for field in fields if field in _CHANGED_BY)
    hints += [f"change it with {one}" for one in commands]
    fixed = [field for field in fields if field not in _CHANGED_BY]
    if fixed:
        hints.append(f"to change {', '.join(fixed)}, delete the VM first, or choose another name")
    return "; ".join(hints) or "give the options that it was created with, or choose another name"
