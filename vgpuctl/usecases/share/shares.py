# SPDX-License-Identifier: Apache-2.0
"""From leases to devices: name them, check them against the live host, plan and build them."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace

from vgpuctl.agent.wire.cdi import SetContainerGpus
from vgpuctl.agent.wire.fabric import PARTITION_STEPS
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.network_function import SetNetworkFunction
from vgpuctl.agent.wire.sharing import VGPU_STEPS, SetVfParams
from vgpuctl.agent.wire.steps import (
    BindDriver,
    RestartFabricManager,
    SetFabricMode,
    SetHugepages,
    SetOvnChassis,
    SetOvnDaemon,
    SetServiceActive,
    SetUplinkBridge,
    Step,
    TakeOutUplink,
)
from vgpuctl.catalog.vgpu_terms import terms_of
from vgpuctl.errors import AgentProblem, ConcurrentChange, StateError
from vgpuctl.model.gpu_positions import placed_gpus
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.host_constraints import HostRules
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.placement import Placement
from vgpuctl.model.vgpu_params import params_against_migration
from vgpuctl.model.vm import Vm
from vgpuctl.planner.plan import (
    as_numbered_now,
    check_compute,
    check_kept,
    check_share,
    params_of,
    plan_share,
    refuse_terms,
    with_first_drivers,
)
from vgpuctl.sharing.guest_drivers import GuestVerdict, check_guest
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.sharing.partition_rules import check_partition
from vgpuctl.sharing.share_on_host import missing_card
from vgpuctl.sharing.types_in_vm import check_in_vm
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.running.undo import Undo


def leases_of(vm: Vm, placement: Placement) -> tuple[Lease, ...]:
    """New leases, `reserved`, for the shares of a placement, which has one for each GPU in the request's order."""
    placed = placed_gpus(vm.request.gpus)
    positions = [one.position or 0 for one in placed] if len(placed) == len(placement.shares) else None
    return tuple(
        Lease(
            id=str(uuid.uuid4()),
            vm_uuid=vm.uuid,
            tenant=vm.request.tenant,
            vm_name=vm.request.name,
            host=placement.host,
            index=index if positions is None else positions[index],
            share=kind_of(share.sharing).named(share, str(uuid.uuid4())),
            state=LeaseState.RESERVED,
        )
        for index, share in enumerate(placement.shares)
    )


def describe_share(lease: Lease) -> str:
    """A share in a few words: `A40-8Q on 0000:41:00.4`."""
    return f"{lease.share.profile} on {lease.share.function}"


def check_leases(
    leases: Sequence[Lease], gpus: Sequence[GpuRequest], facts: HostFacts, rules: HostRules
) -> tuple[Lease, ...]:
    """The leases with the drivers found on the live host, and the ids that its driver gives their types.

    gpus: of the VM's request. Raises ConcurrentChange when a device is no longer free, must not be handed out by the
    host's rules, or has not the compute time that is asked for.
    """
    wanted = _by_position(gpus)
    leases = [replace(lease, share=as_numbered_now(lease.share, facts)) for lease in leases]
    for lease in leases:
        surprise = check_share(lease.share, facts, rules)
        if surprise is not None:
            raise ConcurrentChange(f"{describe_share(lease)} of {rules.host} is no longer free: {surprise}")
        missing = check_compute(lease.share, wanted.get(lease.index), facts, rules)
        if missing is not None:
            where = f"{describe_share(lease)} of {rules.host}"
            raise ConcurrentChange(f"{where} has not the compute time that is asked for: {missing}")
    shares = [lease.share for lease in leases]
    surprise = check_partition(shares, facts) or check_in_vm(shares, facts)
    if surprise is not None:
        raise ConcurrentChange(f"the GPUs on {rules.host} serve no VM together any more: {surprise}")
    return tuple(replace(lease, share=with_first_drivers(lease.share, facts)) for lease in leases)


def _by_position(gpus: Sequence[GpuRequest]) -> dict[int | None, GpuRequest]:
    return {one.position: one for one in placed_gpus(gpus)}


def refuse_kept(leases: Sequence[Lease], facts: HostFacts, rules: HostRules) -> None:
    """Raise StateError when a device that a stopped VM kept must not serve it now.

    It is in quarantine, its host is drained or fenced, its layout has it for something else by now, or a card is no
    longer free as a whole.
    """
    for lease in leases:
        refusal = check_kept(lease.share, facts, rules)
        if refusal is not None:
            raise _not_startable(lease, refusal)


def refuse_other_card(vm: Vm, leases: Sequence[Lease], facts: HostFacts) -> None:
    """Raise StateError when the card of a share that a VM kept is gone from its slot, or another model is there now."""
    for lease in leases:
        reason = missing_card(vm, lease, facts)
        if reason is not None:
            raise _not_startable(lease, reason)


def _not_startable(lease: Lease, reason: str, remedy: str | None = None) -> StateError:
    if remedy is None:
        remedy = f"free the device (`vgpuctl list-gpus --limit {lease.host}` shows who has it, or why it is closed)"
    return StateError(
        f"{lease.tenant}/{lease.vm_name} cannot start with {describe_share(lease)} of {lease.host}: {reason}",
        hint=f"{remedy}, or let the VM be placed anew: vgpuctl stop-vm {lease.tenant}/{lease.vm_name} --hold release",
    )


def refuse_unsuitable(vm: Vm, leases: Sequence[Lease], facts: HostFacts, rules: HostRules) -> None:
    """Raise StateError when a share that a VM kept no longer suits it.

    Its card is another, the share must not serve the VM, or it does not suit parameters or the driver of the guest.
    """
    refuse_other_card(vm, leases, facts)
    refuse_kept(leases, facts, rules)
    surprise = None if vm.is_adopted else check_partition((lease.share for lease in leases), facts)
    if surprise is not None:
        raise StateError(
            f"{vm.printed_name} cannot start with its GPUs of {rules.host}: {surprise}",
            hint=f"`vgpuctl check-hosts -l {rules.host}` says what its fabric lacks; `vgpuctl stop-vm {vm.printed_name}"
            " --hold release` lets the VM be placed anew",
        )
    refuse_together(vm, (lease.share for lease in leases), facts)
    wanted = _by_position(vm.request.gpus)
    for lease in leases:
        missing = check_compute(lease.share, wanted.get(lease.index), facts, rules)
        if missing is not None:
            remedy = f"`vgpuctl plan-hosts --limit {lease.host}` compares the GPU's scheduler with its layout"
            raise _not_startable(lease, missing, remedy)
        refusal = refuse_terms(lease.share, facts, rules, terms_of(vm.as_known))
        if refusal is not None:
            name, without = vm.printed_name, ""
            if vm.request.vgpu_params:
                without = f"`vgpuctl resize-vm {name} --vgpu-param none` takes its parameters away, "
            raise StateError(
                f"{name} cannot start with {describe_share(lease)} of {lease.host}: {refusal}",
                hint=f"{without}`vgpuctl move-vm {name}` looks for a host that suits it; docs/vgpu-parameters.md has"
                " the rules of parameters, docs/upgrades.md those of guest drivers",
            )


def refuse_together(vm: Vm, shares: Iterable[Share], facts: HostFacts) -> None:
    """Raise StateError where the drivers of its host let no VM have these vGPUs together."""
    reason = check_in_vm(shares, facts)
    if reason is not None:
        raise StateError(
            f"{vm.printed_name} cannot have its vGPUs of {vm.host} together: {reason}",
            hint=f"`vgpuctl resize-vm {vm.printed_name} --gpu …` gives it others",
        )


def plan_leases(
    vm: Vm, leases: Sequence[Lease], facts: HostFacts, rules: HostRules
) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return the steps that build the shares of one VM, and the undo in reverse, each step once.

    The parameters of vGPUs are written again each time, since they do not outlive the device; of a VM that somebody
    else defined they stay as they are.
    """
    own = vm.request.vgpu_params
    plans = [
        plan_share(lease.share, facts, None if vm.is_adopted and not own else params_of(lease.share, facts, rules, own))
        for lease in leases
    ]
    steps = tuple(dict.fromkeys(step for plan in plans for step in plan.steps))
    undo = tuple(dict.fromkeys(step for plan in reversed(plans) for step in plan.undo))
    return steps, undo


def say_about_terms(services: Services, vm: Vm, leases: Sequence[Lease], facts: HostFacts, rules: HostRules) -> None:
    """Say which parameters keep a VM from live migration, and that nobody knows if its guest's driver loads here."""
    guest, host = vm.as_known.guest_driver.version, facts.nvidia_driver
    if guest is not None and host is not None and any(kind_of(one.share.sharing).takes is Takes.VGPU for one in leases):
        check = check_guest(guest, host)
        if check.verdict is GuestVerdict.UNKNOWN:
            services.say(
                f"warning: {vm.printed_name}: guest driver {guest} may not load beside the host's {host}: "
                f"{check.reason}"
            )
    found = [params_of(lease.share, facts, rules, vm.request.vgpu_params) for lease in leases]
    names = dict.fromkeys(name for params in found for name in params_against_migration(params))
    if names:
        services.say(f"{vm.printed_name}: {', '.join(names)} keeps its vGPUs from live migration")


def take_steps(host: HostSession, steps: Sequence[Step]) -> None:
    """Have the agent do the steps; without any, the host is not asked."""
    if steps:
        host.agent.apply(steps)


def rehearse_steps(services: Services, host: HostSession, steps: Sequence[Step]) -> None:
    """In a dry run that goes on: note what the agent would do, unless the devices are not yet as these steps find them.

    Raises AgentProblem for a step that it would refuse.
    """
    assert services.rehearsal is not None
    if steps and not services.rehearsal.is_changed(host.name):
        services.rehearsal.would_make(host.name, host.agent.apply(steps, dry_run=True))


def build_shares(host: HostSession, steps: Sequence[Step], undo: Sequence[Step], undoing: Undo) -> None:
    """Do the steps; `undoing` rolls back those that changed something, never what was there before or was refused."""
    untouched: set[str] = set()
    undoing.push("GPU shares", lambda: take_steps(host, [one for one in undo if untouched.isdisjoint(_targets(one))]))
    if not steps:
        return
    try:
        changes = host.agent.apply(steps)
    except AgentProblem as problem:
        untouched.update(target for step in steps for target in _targets(step))
        untouched.difference_update(change.target for change in problem.done if change.changed)
        raise
    untouched.update(change.target for change in changes if not change.changed)


def _targets(step: Step) -> tuple[str, ...]:
    """The object of a step: a vGPU by its device, a service or pool by its name, else functions by their addresses."""
    if isinstance(step, VGPU_STEPS):
        return (step.device,)
    if isinstance(step, SetVfParams):
        return (step.target,)
    if isinstance(step, PARTITION_STEPS):
        return ()  # a partition follows its VM, not the shares: usecases/share/partitions.py
    if isinstance(step, SetServiceActive):
        return (step.name,)
    if isinstance(step, SetHugepages):
        return (f"hugepages-{step.size_kib}kB",)
    if isinstance(
        step,
        SetOvnDaemon
        | SetOvnChassis
        | SetUplinkBridge
        | TakeOutUplink
        | SetFabricMode
        | RestartFabricManager
        | SetContainerGpus
        | SetNetworkFunction,
    ):
        return ()  # a VM's shares need none of these
    return step.addresses if isinstance(step, BindDriver) else (step.address,)
