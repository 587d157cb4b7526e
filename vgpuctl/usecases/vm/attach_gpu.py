# SPDX-License-Identifier: Apache-2.0
"""attach-gpu: one more GPU share for a VM, while it runs where its kind allows it, else at its next start."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import GuestError, StateError, UsageError, VgpuctlError
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.guests.live.gpus import LiveGpus
from vgpuctl.model.display import VgpuDisplay
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.gpu_positions import gpus_of_positions, placed_gpus
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.lease import Lease, LeaseState, without_leaving
from vgpuctl.model.numa import GuestNuma
from vgpuctl.model.placement import Placement
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.specs.vm import check_request
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.found.vm_values import sizes_of
from vgpuctl.usecases.observed.capacities import rules_of
from vgpuctl.usecases.placement.quota import refuse_growth_over_quota
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.running.undo import Undo
from vgpuctl.usecases.seats.licences import take_seat
from vgpuctl.usecases.share.health_gate import refuse_sick
from vgpuctl.usecases.share.partitions import refuse_other_gpus
from vgpuctl.usecases.share.restore_shares import restore_shares
from vgpuctl.usecases.share.shares import (
    build_shares,
    check_leases,
    leases_of,
    plan_leases,
    refuse_together,
    refuse_unsuitable,
    rehearse_steps,
)
from vgpuctl.usecases.vm.pending_gpus import AT_START, BY_GUEST, detach_now
from vgpuctl.usecases.vm.plug_wish import PlugWish
from vgpuctl.usecases.vm.resize_place import place_more
from vgpuctl.usecases.vm.resize_plan import refuse_resize

LET_GO_S = 10.0


@dataclass(frozen=True)
class AttachedGpu:
    """The answer of attach-gpu. lease: None for a VM that has released its shares; its next start places the GPU.

    is_live: True if the guest has it now. reason: why not, if it runs. port: libvirt's index of the port that it is
    behind while the guest runs.
    """

    vm: Vm
    position: int
    lease: Lease | None
    is_live: bool
    reason: str | None = None


def attach_gpu(services: Services, vm: Vm, gpu: GpuRequest, *, wish: PlugWish = PlugWish.AS_IT_GOES) -> AttachedGpu:
    """Give a VM one more GPU. Its other GPUs keep their positions, and with them their addresses in the guest.

    Raises UsageError for several GPUs at once, StateError for a VM that cannot get one, QuotaExceeded, NoCapacity, and
    GuestError when libvirt refuses; nothing is changed then.
    """
    if gpu.count != 1:
        raise UsageError(f"{gpu.text} are {gpu.count} GPUs", hint="attach one at a time")
    with services.store.reading() as session:
        own = session.leases(vm_uuid=vm.uuid)
    position = _free_position(vm.request, own)
    placed = (*placed_gpus(vm.request.gpus), replace(gpu, position=position))
    request = check_request(replace(vm.request, gpus=gpus_of_positions(placed)))
    refuse_resize(services, vm, request, "get a GPU")
    with services.store.reading() as session:
        refuse_growth_over_quota(session, vm.request, request, (), ())
    share = place_more(services, vm, gpu)
    refuse_other_gpus(services, vm, [share])
    made = replace(vm, request=replace(vm.request, gpus=(replace(gpu, position=position),)))
    (lease,) = leases_of(made, Placement(vm.host, (share,)))
    has_released = vm.state is VmState.STOPPED and not without_leaving(own)
    spare, reason = _port(services, vm, lease, wish)
    attached = AttachedGpu(vm, position, None if has_released else lease, spare is not None, reason)
    if spare is not None:
        on_port = (*placed[:-1], replace(placed[-1], spare_port=spare[1]))
        request = replace(request, gpus=gpus_of_positions(on_port))
    with operation(services, "attach-gpu", vm):
        host = services.host(vm.host)
        lease = _record(services, host, vm, request, lease, has_released=has_released, is_live=spare is not None)
        if spare is not None:
            _attach(services, host, vm, lease, spare[0])
    if vm.state is VmState.STOPPED and not has_released:
        restore_shares(services, replace(vm, request=request), dry_run=services.goes_on)
    return replace(attached, vm=replace(vm, request=request))


def _free_position(request: VmRequest, own: Sequence[Lease]) -> int:
    """The lowest position that no GPU has, nor one that the guest has yet to let go of."""
    taken = {one.position for one in placed_gpus(request.gpus)} | {one.index for one in own}
    return next(number for number in range(len(taken) + 1) if number not in taken)


def _port(services: Services, vm: Vm, lease: Lease, wish: PlugWish) -> tuple[tuple[int, int] | None, str | None]:
    """The spare port that a running guest gets the GPU behind; else None, and why it waits for the next start.

    Raises StateError where it must be attached now and cannot.
    """
    if vm.state is not VmState.RUNNING:
        if wish is PlugWish.NOW:
            raise StateError(f"{vm.printed_name} does not run", hint="leave --live out")
        return None, None
    answer = kind_of(lease.share.sharing).hot_plug(lease.share, VgpuDisplay.OFF)
    reason = wish.refuses(answer)
    if reason is None:
        host = services.host(vm.host)
        port = LiveGpus(host.hypervisor, vm.domain_name, uuid=vm.uuid).spare_port()
        if port is not None:
            return port, None
        reason = "the guest has no free port for it (`--spare-ports` says how many stay free)"
    if wish is PlugWish.NOW:
        raise StateError(f"{vm.printed_name}: {lease.share.profile} cannot be attached while it runs: {reason}")
    return None, reason


def _record(
    services: Services,
    host: HostSession,
    vm: Vm,
    request: VmRequest,
    lease: Lease,
    *,
    has_released: bool,
    is_live: bool,
) -> Lease:
    """Promise the share and change the request in one transaction. Raises ConcurrentChange, QuotaExceeded."""
    with services.store.reading() as session:
        generation, own = session.generation(vm.host), session.leases(vm_uuid=vm.uuid)
    facts = host.agent.facts()
    (lease,) = check_leases([lease], request.gpus, facts, rules_of(services, vm.host))
    refuse_unsuitable(replace(vm, request=request), [lease], facts, rules_of(services, vm.host))
    refuse_together(vm, [*(one.share for one in own), lease.share], facts)
    refuse_sick(services, host, [lease], host.agent.health())
    if vm.state is VmState.RUNNING and not is_live:
        lease = replace(lease, problem=AT_START)
    leases = [] if has_released else [lease]
    numa = _numa_with(vm.numa, lease)
    with services.store.transaction() as session:
        now = session.vm(vm.request.tenant, vm.request.name)
        if now is None or (now.uuid, now.host, now.state, now.request) != (vm.uuid, vm.host, vm.state, vm.request):
            raise StateError(f"another run changed {vm.printed_name}", hint="try again")
        refuse_growth_over_quota(session, vm.request, request, (), leases)
        held = session.leases(vm_uuid=vm.uuid)
        session.reserve(vm.host, generation, leases)
        session.set_vm_request(vm.uuid, request)
        session.set_vm_numa(vm.uuid, numa)
        if is_live:
            take_seat(session, replace(vm, request=request), session.leases(vm_uuid=vm.uuid))
        before, after = sizes_of(vm, held), sizes_of(replace(vm, request=request), [*held, *leases])
        detail = "while it runs" if is_live else "at its next start" if vm.state is VmState.RUNNING else ""
        session.add_vm_event(EventKind.GPU_ATTACHED, vm, detail, before=before, after=after)
    return lease


def _numa_with(numa: GuestNuma | None, lease: Lease) -> GuestNuma | None:
    """The VM's NUMA nodes with the node of one more GPU, by its position."""
    if numa is None or not numa.has_vnuma:
        return numa
    cells = [*numa.gpu_cells, *[0] * (lease.index + 1 - len(numa.gpu_cells))]
    at = [number for number, cell in enumerate(numa.cells) if cell.numa_node == lease.share.numa_node]
    cells[lease.index] = at[0] if at else 0
    return replace(numa, gpu_cells=tuple(cells))


def _attach(services: Services, host: HostSession, vm: Vm, lease: Lease, port: int) -> None:
    """Make the device and give it to the guest. A failure takes everything back, once the guest has let go of it."""
    gpus = LiveGpus(host.hypervisor, vm.domain_name, uuid=vm.uuid)
    steps, undo = plan_leases(vm, [lease], host.agent.facts(), rules_of(services, vm.host))
    if services.goes_on:
        rehearse_steps(services, host, steps)
        _note_attached(services, lease)
        return
    with Undo(services.say, subject=vm.printed_name) as undoing:
        undoing.push("GPU of the VM", lambda: _take_back(services, host, vm, lease))
        build_shares(host, steps, undo, Undo(services.say))
        if gpus.attach(lease.index, lease.share, port) is LiveChange.NEXT_START:
            with services.store.transaction() as session:
                session.set_lease_state(lease.id, LeaseState.RESERVED, AT_START)
            services.say(f"{vm.printed_name}: libvirt on {vm.host} attaches no GPU to a domain that runs")
            undoing.keep()
            return
        guest.wait_until_held(host, vm, [lease])
        _note_attached(services, lease)
        undoing.keep()


def _note_attached(services: Services, lease: Lease) -> None:
    with services.store.transaction() as session:
        session.set_lease_state(lease.id, LeaseState.RUNNING)


def _take_back(services: Services, host: HostSession, vm: Vm, lease: Lease) -> None:
    """Detach a GPU that could not be attached as a whole. Raises GuestError while the guest has it: repair goes on."""
    with services.store.transaction() as session:
        session.set_lease_state(lease.id, LeaseState.RELEASING, BY_GUEST)
        session.set_vm_request(vm.uuid, vm.request)
        session.set_vm_numa(vm.uuid, vm.numa)
        session.add_vm_event(EventKind.GPU_DETACHED, vm, "rolled back", after={"gpu": lease.share.profile})
    try:
        kept = detach_now(services, host, vm, [lease], LET_GO_S)
    except VgpuctlError as error:
        raise GuestError(f"{lease.share.profile} was not detached: {error.message}") from error
    if kept:
        raise GuestError(f"{lease.share.profile} stays with the guest until the guest releases it")
