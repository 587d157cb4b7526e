# SPDX-License-Identifier: Apache-2.0
"""uncordon-host: a host, or one of its GPUs, takes VMs again."""

from collections.abc import Collection
from functools import partial

from vgpuctl.errors import StateError, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.plural import counted
from vgpuctl.model.restriction import WHOLE_HOST, Restriction, RestrictionKind, restrictions_on
from vgpuctl.model.vm import VmState
from vgpuctl.model.volume import vm_uuid_of
from vgpuctl.usecases.declared.fleet_values import declared_values
from vgpuctl.usecases.declared.layout_comparison import plan_as_read
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.found.garbage import GarbageKind
from vgpuctl.usecases.image.volumes import has_volumes
from vgpuctl.usecases.maintenance.drain_host import stopped_by_drain
from vgpuctl.usecases.maintenance.evacuate_host import is_lost
from vgpuctl.usecases.maintenance.gc import find_garbage
from vgpuctl.usecases.maintenance.restricted import find_gpu, is_set, lift
from vgpuctl.usecases.network.gateways import return_gateways
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.release import release_cards_of
from vgpuctl.usecases.vm.start_vm import start_vm


def uncordon_host(
    services: Services, host: str, *, gpu: str | None, reason: str, force: bool = False
) -> list[Restriction]:
    """Lift the cordon, drain or fence of a host, or the cordon of one GPU by its PCI address. Returns what was lifted.

    A drained or fenced host is read first, and must be as it is declared: StateError names the differences. force: lift
    it nevertheless. On a fenced host, VMs that are elsewhere by now are ended first, and no other remains of VMs may be
    left, whatever `force` says, but for volumes that gc leaves alone; a VM that was lost, and whose data is there, may
    start again. A quarantine stays: `unquarantine-gpu` lifts it. Raises InventoryError for an unknown host, NotFound
    for an unknown GPU.
    """
    card = None if gpu is None else find_gpu(services, host, gpu)
    services.inventory.require(host)
    is_back = card is None and is_host_fenced(services, host)
    if is_back:
        ended = _end_stale_vms(services, host)
        _refuse_remains(services, host, ended if services.goes_on else (), force=force)
    if card is None and not force:
        _verify(services, host)
    with services.store.transaction() as session:
        every = [one for one in session.restrictions() if one.kind is not RestrictionKind.QUARANTINE]
        if card is not None:
            found = restrictions_on(every, host, card.address, card.uuid)
        else:
            found = [one for one in every if (one.host, one.device) == (host, WHOLE_HOST)]
        for one in found:
            lift(session, one, reason)
        tell_ovn = return_gateways(services, session, host) if card is None else None
    if tell_ovn is not None:
        tell_ovn()
    if is_back:
        _give_back(services, host)
    return found


def _verify(services: Services, host: str) -> None:
    """Read a host after its maintenance. Raises its error, and StateError for what is not as declared."""
    kinds = (RestrictionKind.DRAIN, RestrictionKind.FENCE)
    if not any(is_set(services, host, WHOLE_HOST, kind) for kind in kinds):
        return
    seen = survey(services, [host], refresh=True)
    for _name, error in seen.failures:
        raise error
    (capacity,) = seen.capacities
    found = [f"GPU {gpu.address}: {problem}" for gpu in capacity.facts.gpus for problem in gpu.problems]
    layout, hint = services.inventory.layout(host), f"run `vgpuctl apply-hosts --limit {host}`"
    if layout is not None:
        doubles = declared_values(services.inventory).obstacles_of(host, layout, capacity.facts)
        plan = plan_as_read(services, host, layout, capacity.facts, doubles)
        found += map(str, (*plan.differences, *plan.obstacles))
        hint = f"see what is in the way: `vgpuctl plan-hosts --limit {host}`" if plan.obstacles else hint
        for note in plan.notes:
            services.say(f"{host}: {note}")
    if found:
        raise StateError(
            f"{host} is not as it was before its maintenance: {counted(len(found), 'finding')}",
            context=found,
            hint=f"{hint}, or add --force to let it take VMs as it is",
        )


def _end_stale_vms(services: Services, host: str) -> list[str]:
    """End and undefine the domains of VMs that are on other hosts by now: they would run twice. Returns their names.

    Domains of VMs that were lost go too, for they name shares that the VMs gave up, but only when they are off: such a
    VM runs nowhere else, so one that runs raises StateError.
    """
    here = services.host(host)
    there = {domain.uuid: domain for domain in here.hypervisor.domains()}
    with services.store.reading() as session:
        stale = [vm for vm in session.vms() if vm.uuid in there and (vm.host != host or is_lost(vm))]
    running = [vm for vm in stale if vm.host == host and there[vm.uuid].state.is_active()]
    ending = [vm for vm in stale if vm not in running]
    for vm in ending:
        # A lost VM is still here, with its disk.
        is_here = vm.host == host
        if not services.goes_on:
            guest.remove_domain(here, vm, when_off=partial(release_cards_of, services, here), keeps_state=is_here)
        if is_here:
            continue
        with services.store.transaction() as session:
            detail = f"on {host}, which was fenced; it is on {vm.host}"
            session.add_vm_event(EventKind.VM_STALE_ENDED, vm, detail, before={"host": host}, after={"host": vm.host})
        services.say(f"{vm.printed_name}: its remains on {host} are ended; it is on {vm.host}")
    if running:
        raise StateError(
            f"{host} still runs {counted(len(running), 'VM')} that gave up GPU shares when it was evacuated",
            context=[f"domain {vm.domain_name} is {there[vm.uuid].state}" for vm in running],
            hint=f"shut it down with `virsh shutdown {running[0].domain_name}` on {host}, then run this command again",
        )
    return [there[vm.uuid].name for vm in ending]


def _refuse_remains(services: Services, host: str, ending: Collection[str], *, force: bool) -> None:
    """Raise StateError while a host that was fenced has domains, volumes or vGPUs of VMs that the store settled.

    ending: domains that a dry run has left where they are. force: accept volumes that gc leaves alone.
    """
    search = find_garbage(services, (GarbageKind.DOMAIN, GarbageKind.VOLUME, GarbageKind.VGPU), [host])
    for _name, error in search.failures:
        raise error
    remains = [
        one
        for one in search.found
        if (one.left is None or one.kind is GarbageKind.DOMAIN)
        and not (one.kind is GarbageKind.DOMAIN and one.name in ending)
    ]
    if remains:
        kinds = " ".join(f"--kind {kind}" for kind in sorted({str(one.kind) for one in remains}))
        raise StateError(
            f"{host} still has {counted(len(remains), 'object')} of VMs that were settled without it",
            context=[f"{one.kind} {one.name}: {one.left or one.why}" for one in remains],
            hint=f"look at them, then run `vgpuctl gc --limit {host} {kinds}` and this command again",
        )
    with services.store.reading() as session:
        known = {vm.uuid for vm in session.vms()}
    volumes = [
        one
        for one in search.found
        if one.kind is GarbageKind.VOLUME and vm_uuid_of(one.name.rpartition("/")[2]) not in known
    ]
    if volumes and not force:
        raise StateError(
            f"{host} still has {counted(len(volumes), 'volume')} of no VM",
            context=[f"{one.kind} {one.name}: {one.left}" for one in volumes],
            hint="delete those whose data nobody needs with `virsh vol-delete`, or add --force to keep them",
        )


def _give_back(services: Services, host: str) -> None:
    """Note of each VM that was lost with its host, and has its data there, that it may start again."""
    with services.store.reading() as session:
        lost = [vm for vm in session.vms(host=host) if is_lost(vm)]
    for vm in lost:
        if not has_volumes(services, services.host(host), vm):
            continue
        detail = f"its data is on {host}, which is back"
        with services.store.transaction() as session:
            session.set_vm_state(vm.uuid, VmState.STOPPED)
            session.add_vm_event(
                EventKind.VM_FOUND, vm, detail, before={"problem": vm.problem}, after={"problem": None}
            )
        services.say(f"{vm.printed_name}: {detail}: start it with `vgpuctl start-vm`")


def start_drained(services: Services, host: str) -> list[tuple[str, str]]:
    """Start the VMs that a drain stopped, the most important first. Returns each with `running`, or why it is not."""
    with services.store.reading() as session:
        vms = stopped_by_drain(session.vms(host=host))
    outcomes = []
    for vm in vms:
        try:
            start_vm(services, [vm])
            outcomes.append((vm.printed_name, "running"))
        except VgpuctlError as error:
            outcomes.append((vm.printed_name, f"failed: {error.message}"))
    return outcomes
