# SPDX-License-Identifier: Apache-2.0
"""How a VM gets another size: what is wanted, what refuses it, its place then, and whether it runs on meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from vgpuctl.errors import NoCapacity, StateError
from vgpuctl.model.gpu_positions import placed_gpus
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.lease import Lease, without_leaving
from vgpuctl.model.times import format_duration
from vgpuctl.model.vgpu_params import VgpuParams, change_while_used
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.quota.vm_limits import WantedLimit, changed_limits, with_limits_of, with_wanted
from vgpuctl.specs.vm import check_request, list_differences
from vgpuctl.usecases.domain.limits import refuse_live
from vgpuctl.usecases.found.find_vm import refuse_suspended, refuse_unfinished
from vgpuctl.usecases.placement.quota import refuse_growth_over_quota
from vgpuctl.usecases.placement.reservations import used_by
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.shares import describe_share, leases_of
from vgpuctl.usecases.vm.final_preemptions import refuse_while_preempted
from vgpuctl.usecases.vm.move_plan import PlannedMove, plan_move
from vgpuctl.usecases.vm.resize_place import NewPlace, place_here
from vgpuctl.usecases.vm.start_vm import refuse_closed


@dataclass(frozen=True)
class NewSize:
    """The wanted values; None stays as it is. gpus, vgpu_params: all of the VM, empty for none.

    max_downtime_s: the longest that a live move may halt it, inf for no limit. limits: of its vCPUs, disks and
    interfaces; those that are not named stay.
    """

    vcpus: int | None = None
    memory_mib: int | None = None
    gpus: tuple[GpuRequest, ...] | None = None
    vgpu_params: VgpuParams | None = None
    max_downtime_s: float | None = None
    limits: tuple[WantedLimit, ...] = ()

    def of(self, request: VmRequest) -> VmRequest:
        """The request in its new size. Raises UsageError for a size that no VM can have."""
        request = with_wanted(request, self.limits)
        return check_request(
            replace(
                request,
                vcpus=request.vcpus if self.vcpus is None else self.vcpus,
                memory_mib=request.memory_mib if self.memory_mib is None else self.memory_mib,
                gpus=request.gpus if self.gpus is None or _texts(self.gpus) == _texts(request.gpus) else self.gpus,
                vgpu_params=request.vgpu_params if self.vgpu_params is None else tuple(sorted(set(self.vgpu_params))),
                max_downtime_s=None if self.max_downtime_s == inf else self.max_downtime_s or request.max_downtime_s,
            )
        )


def _texts(gpus: Sequence[GpuRequest]) -> list[str]:
    return [one.text for one in placed_gpus(gpus)]


@dataclass(frozen=True)
class PlannedResize:
    """How a VM changes. Either `here`, its place on its own host, or `move` is set, or none of them: it runs on.

    fixed: why limits of a VM that runs change after its stop only; None where they change at once, or do not change.
    """

    vm: Vm
    request: VmRequest
    before: tuple[Lease, ...]
    here: NewPlace | None = None
    move: PlannedMove | None = None
    fixed: str | None = None

    @property
    def is_change(self) -> bool:
        """True if anything differs."""
        return self.request != self.vm.request

    @property
    def has_other_limits(self) -> bool:
        """True if limits of its vCPUs, disks or interfaces change."""
        return bool(changed_limits(self.vm.request, self.request))

    @property
    def is_in_place(self) -> bool:
        """True if a VM that runs goes on with what changes: its longest halt, limits, parameters of VFs it keeps."""
        was, now = self.vm.request, with_limits_of(self.request, self.vm.request)
        if self.fixed is not None:
            return False
        others = replace(now, max_downtime_s=was.max_downtime_s, vgpu_params=was.vgpu_params)
        is_placed = self.here is not None and (without_leaving(self.here.ending) or self.here.beginning)
        return others == was and change_while_used(was.vgpu_params, now.vgpu_params) and not (is_placed or self.move)

    @property
    def has_other_params(self) -> bool:
        """True if the parameters of its vGPUs change."""
        return self.request.vgpu_params != self.vm.request.vgpu_params

    @property
    def differences(self) -> list[str]:
        """One line per field that differs: `vcpus: 2 there, 4 wanted`."""
        before = self.vm.request.max_downtime_s
        is_lifted = before is not None and self.request.max_downtime_s is None
        lifted = [f"max_downtime: {format_duration(before)} there, none wanted"] if before and is_lifted else []
        return [*list_differences(self.vm.request, self.request), *lifted]

    @property
    def host(self) -> str:
        """The host that the VM is on then."""
        return self.vm.host if self.move is None else self.move.placement.host

    @property
    def shares_after(self) -> list[str]:
        """The shares that it has then, each in a few words."""
        if self.move is not None:
            return [f"{share.profile} on {share.function}" for share in self.move.placement.shares]
        return [describe_share(lease) for lease in (self.before if self.here is None else self.here.after)]

    @property
    def notes(self) -> list[str]:
        """Consequences for the VM's owner, a sentence each."""
        found = [] if self.fixed is None else [self.fixed]
        if self.is_in_place and (self.here is not None or self.has_other_limits) and self.vm.has_to_run:
            found.append("it changes while it runs")
        elif not self.is_in_place and self.vm.has_to_run:
            found.append("it is shut down, and started again in its new size")
        numa = None if self.here is None else self.here.numa
        if numa is not None and self.vm.numa is not None and numa.has_vnuma != self.vm.numa.has_vnuma:
            found.append("the guest's NUMA nodes change, and with them the PCI addresses of its GPUs in the guest")
        return found


def plan_resize(services: Services, vm: Vm, size: NewSize, *, may_move: bool = False) -> PlannedResize:
    """Find a place for the VM in its new size, on its own host first. Nothing is written, on no host.

    Raises UsageError for a size that no VM can have, StateError for a VM that cannot be resized, QuotaExceeded, and
    NoCapacity that says what keeps each GPU from it.
    """
    request = size.of(vm.request)
    with services.store.reading() as session:
        own = tuple(session.leases(vm_uuid=vm.uuid))
    if request == vm.request:
        return PlannedResize(vm, request, own)
    limited = with_limits_of(request, vm.request)
    is_small = replace(limited, max_downtime_s=vm.request.max_downtime_s) == vm.request
    if is_small and limited == request:
        refuse_unfinished(vm)
        return PlannedResize(vm, request, own)
    refuse_resize(services, vm, request)
    fixed = None if limited == request else _refuse_limits(services, vm, request)
    if is_small and fixed is None:
        return PlannedResize(vm, request, own)
    try:
        here = place_here(services, vm, request)
    except NoCapacity as full:
        if not may_move:
            raise NoCapacity(
                f"{vm.printed_name} cannot be resized on {vm.host}: {full.message}",
                context=full.context,
                hint=f"{full.hint}; or add --move to look for another host" if full.hint else "add --move to move it",
                brief=full.brief,
            ) from full
        services.say(f"{vm.host} has no room for the new size: looking for another host")
        move = plan_move(services, vm, request=request)
        with services.store.reading() as session:
            refuse_growth_over_quota(session, vm.request, request, own, leases_of(vm, move.placement))
        return PlannedResize(vm, request, own, move=move, fixed=fixed)
    with services.store.reading() as session:
        refuse_growth_over_quota(session, vm.request, request, here.ending, here.beginning)
    return PlannedResize(vm, request, own, here, fixed=fixed)


def _refuse_limits(services: Services, vm: Vm, request: VmRequest) -> str | None:
    """Say why limits that differ cannot change while the VM runs; None where they can, or where it is off.

    Raises QuotaExceeded for a limit above a ceiling, and for a sum above a quota.
    """
    with services.store.reading() as session:
        session.require_below(request, vm.request)
        refuse_growth_over_quota(session, vm.request, request, (), ())
    if not vm.has_to_run:
        return None
    if request.cpu_weight is None and vm.request.cpu_weight is not None:
        return "it keeps its weight of the CPUs until it is started again: libvirt takes no weight away"
    return refuse_live(services, replace(vm, request=with_limits_of(vm.request, request)))


def refuse_resize(services: Services, vm: Vm, request: VmRequest, what: str = "be resized") -> None:
    """Raise StateError for a VM that cannot get another size or other GPUs, with the reason. what: for the message."""
    refuse_unfinished(vm)
    refuse_suspended(vm, "change")
    if vm.is_adopted:
        raise StateError(
            f"{vm.printed_name}: cannot {what}: its domain {vm.domain_name} is adopted, and vgpuctl never writes its"
            " definition",
            hint="change it with `virsh edit` while it is off, or delete it and create it again",
        )
    if vm.gang is not None and with_limits_of(request, vm.request) != vm.request:
        raise StateError(
            f"{vm.printed_name}: cannot {what}: it is one of a gang, whose VMs fit together and start together",
            hint="delete the gang, and create it again with --gang",
        )
    refuse_while_preempted(services, vm)
    refuse_closed(services, vm)
    with services.store.reading() as session:
        waiting = session.queued(vm.request.tenant, vm.request.name)
        reserved = used_by(session, vm)
    if waiting is not None:
        raise StateError(
            f"{vm.printed_name}: cannot {what}: it waits in the queue as it is",
            hint=f"vgpuctl leave-queue {vm.printed_name}",
        )
    if reserved is not None and request.gpus != vm.request.gpus:
        raise StateError(
            f"{vm.printed_name}: its GPUs cannot change: it uses reservation {reserved.name}, which keeps them",
            hint=f"vgpuctl cancel-reservation {vm.request.tenant}/{reserved.name}",
        )
