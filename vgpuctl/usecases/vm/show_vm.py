# SPDX-License-Identifier: Apache-2.0
"""show-vm: what the store, libvirt, QEMU and the kernel say about one VM, side by side."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from vgpuctl.agent.wire.fabric import FabricPartition
from vgpuctl.agent.wire.facts import Holder, HostFacts
from vgpuctl.agent.wire.measures import VGPU
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.errors import AgentProblem, InventoryError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState, GuestPciDevice
from vgpuctl.model.event import Event, events_of_vms
from vgpuctl.model.lease import Lease
from vgpuctl.model.licence import LicenceSeat
from vgpuctl.model.promise import LastFinding
from vgpuctl.model.vm import RestartPolicy, Vm, VmState
from vgpuctl.planner.plan import check_kept, params_of
from vgpuctl.sharing.gate import refuse_share
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of, params_found
from vgpuctl.sharing.measured import join_leases
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.sharing.partition_rules import told_partition
from vgpuctl.sharing.share_on_host import holders_of, is_lost, missing_card
from vgpuctl.store.store import Session
from vgpuctl.usecases.measured.last_hour import LastHour, read_last_hour
from vgpuctl.usecases.network.shown_interfaces import ShownInterface, shown_interfaces
from vgpuctl.usecases.observed.capacities import rules_of
from vgpuctl.usecases.observed.guest_driver import read_host
from vgpuctl.usecases.observed.known_promises import known_now
from vgpuctl.usecases.observed.node_states import Memberships
from vgpuctl.usecases.observed.observations import (
    NEVER_OBSERVED,
    Observation,
    describe_age,
    describe_state,
    note_failure,
    observations,
    observed_shares,
    read_domains,
    read_facts,
)
from vgpuctl.usecases.observed.restarts import read_restarts
from vgpuctl.usecases.placement.preemption import PreemptionTerms, preemption_terms
from vgpuctl.usecases.running.services import HostSession, Services

_EVENTS = 5
PAST_MEASURES = ("utilization_ratio", "share_utilization_ratio", "framebuffer_used_bytes", "steal_ratio")
"""Measures of a vGPU that are shown over the last hour."""


@dataclass(frozen=True)
class LastRestart:
    """The last time that the controller started a VM again, or tried to. Times are seconds since the epoch, UTC.

    count: of those in a row. problem: why it failed; None when it did not. next_at: of a VM that is off and is started
    again, the end of the back-off; None when that is over.
    """

    count: int
    at: float
    problem: str | None
    next_at: float | None


@dataclass(frozen=True)
class ShownVm:
    """Three witnesses (design, section 7). holders: per lease, the processes that hold its device, by the kernel;
    None where the host has no such device (it was rebooted, or somebody took the device away).

    guest_devices: what QEMU says is on the guest's PCI buses. host_problem: why libvirt could not be asked; then
    domain_state is unknown, and observation says what was last observed. holders is empty when the agent could not be
    asked. state: the observation in words. shares: of each lease, the last observation of its device; shares_seen: the
    same in words. not_again: of each lease, why its device, which the host has lost, cannot be made again; None where
    it can, or is there.
    closed: of each lease, why its GPU takes the VM no more once it is off: a quarantine, or a closed host.
    preemption: terms on which it may be preempted; None if it never is. restart: the controller's last restart.
    last_hour: of its vGPUs; None without any. promises: of a VM that runs, the last finding of each promise.
    vgpu_params: of each lease, the parameters of its vGPU as last read; None without any. licence: its seat, also one
    that is still to come back. licence_states: of each lease, by the host's NVML now; empty when the host could not be
    asked.
    partition: of its GPUs on the NVSwitch fabric, as its host was last read; None where it needs none or none is known.
    partition_problem: why it needs one and none is known.
    node_pool, cluster: of a node. created_at: seconds since the epoch, UTC. events: its last ones, the oldest first.
    """

    vm: Vm
    leases: tuple[Lease, ...]
    domain_state: str | None
    xml: str | None
    holders: tuple[tuple[Holder, ...] | None, ...]
    guest_devices: tuple[GuestPciDevice, ...]
    host_problem: str | None
    preemption: PreemptionTerms | None = None
    observation: Observation = NEVER_OBSERVED
    state: str = ""
    shares: tuple[Observation, ...] = ()
    shares_seen: tuple[str, ...] = ()
    restart: LastRestart | None = None
    not_again: tuple[str | None, ...] = ()
    closed: tuple[str | None, ...] = ()
    last_hour: LastHour | None = None
    licence: LicenceSeat | None = None
    licence_states: tuple[str | None, ...] = ()
    promises: tuple[LastFinding, ...] = ()
    interfaces: tuple[ShownInterface, ...] = ()
    vgpu_params: tuple[str | None, ...] = ()
    partition: FabricPartition | None = None
    partition_problem: str | None = None
    node_pool: str | None = None
    cluster: str | None = None
    created_at: float | None = None
    events: tuple[Event, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)


def show_vm(services: Services, vm: Vm, leases: Sequence[Lease]) -> ShownVm:
    """Ask the VM's host about it; a host that does not answer is a line, not a failure."""
    leases = tuple(leases)
    shown = ShownVm(vm, leases, None, None, (), (), None, preemption_terms(services, vm, leases))
    shown = _ask_libvirt(services, replace(shown, labels=dict(vm.request.labels)))
    if shown.host_problem is None or services.is_connected(vm.host):
        try:
            shown = _ask_kernel(services, shown)
            shown = replace(
                shown, licence_states=_licence_states(services, vm, leases) if vm.state is VmState.RUNNING else ()
            )
        except VgpuctlError as error:
            shown = replace(shown, host_problem=shown.host_problem or error.message)
    with services.store.reading() as session:
        seen = observations(session, [vm])[vm.uuid]
        shares = observed_shares(session, leases)
        known = session.facts(vm.host)
        pool = Memberships(session, vm.request.tenant).of_vm(vm.uuid)
        shown = replace(shown, observation=seen, state=describe_state(vm, seen, session.now()))
        shown = replace(
            shown,
            shares=tuple(shares[lease.id] for lease in leases),
            shares_seen=tuple(describe_age(shares[lease.id], session.now()) for lease in leases),
            restart=_last_restart(session, vm, seen),
            licence=next(iter(session.licence_seats(vm_uuid=vm.uuid)), None),
            node_pool=pool.node_pool,
            cluster=pool.cluster,
            created_at=session.vm_created_at(vm.uuid),
            promises=known_now(session, vm.host).get(vm.uuid, ()) if vm.state is VmState.RUNNING else (),
            events=tuple(session.events(_EVENTS, events_of_vms([vm.printed_name]))),
        )
    facts = None if known is None else known.facts
    shown = replace(shown, closed=_closed(services, leases, facts), vgpu_params=_params(services, vm, leases, facts))
    shown = replace(_with_partition(shown, facts), interfaces=shown_interfaces(services, vm))
    return replace(shown, last_hour=_last_hour(services, vm, leases)) if leases else shown


def _licence_states(services: Services, vm: Vm, leases: Sequence[Lease]) -> tuple[str | None, ...]:
    """The licence of each vGPU's guest; None for what the driver does not show."""
    if not any(kind_of(lease.share.sharing).takes is Takes.VGPU for lease in leases):
        return ()
    shares = {one.lease.id: one for one in join_leases(leases, {vm.host: read_host(services, vm.host)})}
    return tuple(shares[lease.id].measured.label("license_state") if lease.id in shares else None for lease in leases)


def _last_hour(services: Services, vm: Vm, leases: Sequence[Lease]) -> LastHour:
    """The last hour of the shares that the VM has now."""
    devices = {lease.share.vfio_device for lease in leases}
    return read_last_hour(
        services.past(),
        VGPU,
        PAST_MEASURES,
        now=services.store.now(),
        is_wanted=lambda one: one.object in devices,
        host=vm.host,
        tenant=vm.request.tenant,
        vm=vm.request.name,
    )


def _closed(services: Services, leases: Sequence[Lease], facts: HostFacts | None) -> tuple[str | None, ...]:
    """The gate's refusal of each share. None where the inventory cannot be read: other commands report that."""
    found: list[str | None] = []
    for lease in leases:
        gpu = None if facts is None else gpu_at(facts, lease.share.gpu)
        refusal = None
        if gpu is not None:
            with contextlib.suppress(InventoryError):
                refusal = refuse_share(lease.share, gpu, rules_of(services, lease.host), is_kept=True)
        found.append(refusal)
    return tuple(found)


def _params(services: Services, vm: Vm, leases: Sequence[Lease], facts: HostFacts | None) -> tuple[str | None, ...]:
    """The parameters of each vGPU. A host that answers and has or should have any is read again."""
    found = _params_by(facts, leases)
    if facts is not None and services.is_connected(vm.host):
        with contextlib.suppress(VgpuctlError):
            rules = rules_of(services, vm.host)
            is_declared = any(params_of(lease.share, facts, rules, vm.request.vgpu_params) for lease in leases)
            if is_declared or any(found):
                found = _params_by(services.host(vm.host).agent.facts(), leases)
    return found


def _params_by(facts: HostFacts | None, leases: Sequence[Lease]) -> tuple[str | None, ...]:
    gpus = [None if facts is None else gpu_at(facts, lease.share.gpu) for lease in leases]
    return tuple(
        None if gpu is None else params_found(lease.share, gpu) for lease, gpu in zip(leases, gpus, strict=True)
    )


def _with_partition(shown: ShownVm, facts: HostFacts | None) -> ShownVm:
    found, problem = told_partition((one.share for one in shown.leases), facts)
    return replace(shown, partition=found, partition_problem=problem)


def _last_restart(session: Session, vm: Vm, seen: Observation) -> LastRestart | None:
    restarts = read_restarts(session, vm.host)
    last = restarts.vms.get(vm.uuid)
    if last is None:
        return None
    is_wanted = vm.request.restart is not RestartPolicy.NEVER or vm.uuid in restarts.returning
    waits = is_wanted and seen.state in (DomainState.SHUT_OFF, DomainState.CRASHED) and not last.is_over(session.now())
    return LastRestart(last.count, last.at, last.problem, last.at + last.delay_s if waits else None)


def _ask_libvirt(services: Services, shown: ShownVm) -> ShownVm:
    """Read what libvirt and QEMU say, and record it; no answer is recorded too."""
    vm = shown.vm
    try:
        found = read_domains(services, vm.host).get(vm.uuid)
        if found is None:
            return shown
        hypervisor = services.host(vm.host).hypervisor
        return replace(
            shown,
            domain_state=found.state.value,
            xml=hypervisor.xml(found.name),
            guest_devices=tuple(hypervisor.pci_devices(found.name)) if found.state is DomainState.RUNNING else (),
        )
    except VgpuctlError as error:
        note_failure(services, vm.host, error)
        services.note_silent(vm.host, error)
        return replace(shown, host_problem=error.message)


def _ask_kernel(services: Services, shown: ShownVm) -> ShownVm:
    """Ask who holds the devices; of a VM that is off, whether its host still has them."""
    vm, leases = shown.vm, shown.leases
    is_off = shown.host_problem is None and shown.domain_state in (None, DomainState.SHUT_OFF, DomainState.CRASHED)
    if not is_off or not leases:
        host = services.host(vm.host)
        return replace(shown, holders=tuple(_holders(host, lease) for lease in leases))
    facts = read_facts(services, vm.host)
    found, reasons = [], []
    for lease in leases:
        held = None if is_lost(vm, lease, facts) else tuple(holders_of(facts, lease.share) or ())
        found.append(held)
        may_be_closed = held is None and lease.state.is_attached()
        reasons.append(_not_again(services, vm, lease, facts) if may_be_closed else None)
    return replace(shown, holders=tuple(found), not_again=tuple(reasons))


def _not_again(services: Services, vm: Vm, lease: Lease, facts: HostFacts) -> str | None:
    """Why a lost device cannot be made again. None where the inventory cannot be read: other commands report that."""
    with contextlib.suppress(InventoryError):
        return missing_card(vm, lease, facts) or check_kept(lease.share, facts, rules_of(services, vm.host))
    return None


def _holders(host: HostSession, lease: Lease) -> tuple[Holder, ...] | None:
    try:
        return tuple(host.agent.holders(lease.share.vfio_device))
    except AgentProblem as problem:
        if problem.code != ProblemCode.NOT_FOUND:
            raise
        return None
