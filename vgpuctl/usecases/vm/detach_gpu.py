# SPDX-License-Identifier: Apache-2.0
"""detach-gpu: one GPU less for a VM. A guest that runs has to let go of it first; until then it is pending."""

from dataclasses import dataclass, replace

from vgpuctl.errors import NotFound, StateError
from vgpuctl.guests.domain.display_view import hostdev_display, shown_device
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.gpu_positions import gpus_of_positions, placed_gpus
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.specs.vm import check_request
from vgpuctl.usecases.found.vm_values import sizes_of
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.partitions import refuse_other_gpus
from vgpuctl.usecases.share.release import release_shares
from vgpuctl.usecases.vm.pending_gpus import AT_STOP, BY_GUEST, detach_now, release_pending
from vgpuctl.usecases.vm.plug_wish import PlugWish
from vgpuctl.usecases.vm.resize_plan import refuse_resize


@dataclass(frozen=True)
class DetachedGpu:
    """The answer of detach-gpu. lease: None for a VM that has released its shares.

    is_pending: True while the guest still has the GPU; reason: what it waits for.
    """

    vm: Vm
    position: int
    lease: Lease | None
    is_pending: bool = False
    reason: str | None = None


def detach_gpu(
    services: Services,
    vm: Vm,
    position: int,
    *,
    wish: PlugWish = PlugWish.AS_IT_GOES,
    timeout_s: float,
) -> DetachedGpu:
    """Take a GPU from a VM. The others keep their positions, and with them their addresses in the guest.

    The share goes back to the pool through the health gate, and only when the guest has it no more: after timeout_s
    it is pending, and `repair`, or the VM's stop, finishes it. Raises NotFound for a position without a GPU,
    StateError, and GuestError when libvirt refuses.
    """
    placed = placed_gpus(vm.request.gpus)
    with services.store.reading() as session:
        own = session.leases(vm_uuid=vm.uuid)
    lease = next((one for one in own if one.index == position), None)
    if lease is not None and lease.state is LeaseState.RELEASING:
        return _go_on(services, vm, lease, wish, timeout_s)
    if position not in {one.position for one in placed}:
        there = ", ".join(f"{one.position}: {one.text}" for one in placed) or "none"
        raise NotFound(f"{vm.printed_name} has no GPU {position}", hint=f"its GPUs are {there}")
    left = gpus_of_positions([one for one in placed if one.position != position])
    request = check_request(replace(vm.request, gpus=left))
    refuse_resize(services, vm, request, "give up a GPU")
    if lease is not None:
        refuse_other_gpus(services, vm, [lease.share])
    reason = None if lease is None else _waits_for(services, vm, lease, own, wish)
    now = replace(vm, request=request)
    with operation(services, "detach-gpu", vm):
        with services.store.transaction() as session:
            stored = session.vm(vm.request.tenant, vm.request.name)
            if stored is None or (stored.uuid, stored.state, stored.request) != (vm.uuid, vm.state, vm.request):
                raise StateError(f"another run changed {vm.printed_name}", hint="try again")
            session.set_vm_request(vm.uuid, request)
            if lease is not None:
                session.set_lease_state(lease.id, LeaseState.RELEASING, (reason and AT_STOP) or BY_GUEST)
            before, after = sizes_of(vm, own), sizes_of(now, [one for one in own if one is not lease])
            session.add_vm_event(EventKind.GPU_DETACHED, vm, reason or "", before=before, after=after)
        return _release(services, now, lease, position, reason, timeout_s)


def _waits_for(services: Services, vm: Vm, lease: Lease, own: list[Lease], wish: PlugWish) -> str | None:
    """Say why the GPU stays until the VM stops; None when it is detached now.

    Raises StateError where it must be detached now and cannot.
    """
    if vm.state is not VmState.RUNNING or lease.state is not LeaseState.RUNNING:
        return None
    with services.store.reading() as session:
        known = session.facts(vm.host)
    shown = None if known is None else shown_device(vm.request.display, own, known.facts)
    is_shown = shown is not None and own[shown] is lease
    answer = kind_of(lease.share.sharing).hot_plug(lease.share, hostdev_display(vm.request.display, is_shown=is_shown))
    reason = wish.refuses(answer)
    if reason is not None and wish is PlugWish.NOW:
        raise StateError(f"{vm.printed_name}: GPU {lease.index} cannot be detached while it runs: {reason}")
    return reason


def _release(
    services: Services, vm: Vm, lease: Lease | None, position: int, reason: str | None, timeout_s: float
) -> DetachedGpu:
    """Give the share back where nothing has it; else ask the guest, or wait for the VM's stop."""
    if lease is None:
        return DetachedGpu(vm, position, None)
    host = services.host(vm.host)
    if vm.state is not VmState.RUNNING:
        release_shares(services, host, [lease])
        return DetachedGpu(vm, position, lease)
    if reason is not None:
        kept = release_pending(services, host, vm, [lease])
        return DetachedGpu(vm, position, lease, bool(kept), reason if kept else None)
    kept = detach_now(services, host, vm, [lease], timeout_s)
    why = f"the guest has not released it in {timeout_s:g} s: `vgpuctl repair` asks again, and the VM's stop ends it"
    return DetachedGpu(vm, position, lease, bool(kept), why if kept else None)


def _go_on(services: Services, vm: Vm, lease: Lease, wish: PlugWish, timeout_s: float) -> DetachedGpu:
    """The same command again, for a GPU that is pending. --live asks the guest for one that waits for the stop."""
    waits = lease.problem == AT_STOP and wish is not PlugWish.NOW
    reason = AT_STOP.removeprefix("pending: ") if waits else None
    with operation(services, "detach-gpu", vm):
        return _release(services, vm, lease, lease.index, reason, timeout_s)
