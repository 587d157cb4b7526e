# SPDX-License-Identifier: Apache-2.0
"""explain-vm: what every host and GPU answers to a request, and the nearest changes that would admit it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpuctl.agent.wire.fabric import FabricPartition
from vgpuctl.errors import NoLicence, NotFound, QuotaExceeded, UsageError, VgpuctlError
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.model.placement import HostCapacity, Placement, Rejection
from vgpuctl.model.queue import QueueEntry
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.quota.host_pools import closed_hosts
from vgpuctl.scheduler.calendar import Booking
from vgpuctl.scheduler.candidates import Candidate
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.guest_place import footprint_of_vm
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.scheduler.place import refuse_unknown
from vgpuctl.scheduler.predict import GpuPrediction, predict_candidates
from vgpuctl.scheduler.promised import changes_in_time, promised_leases, rejections_with_promises
from vgpuctl.scheduler.relieve import relieve
from vgpuctl.scheduler.scorer import FleetView
from vgpuctl.scheduler.victims import Eviction
from vgpuctl.scheduler.what_if import FittingChange, changes_that_admit
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.measured import why_time_unmeasured
from vgpuctl.sharing.partition_rules import told_partition
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.measured.measured_view import GpuLoad, last_view, read_measurements, workloads_of
from vgpuctl.usecases.measured.performance import read_model
from vgpuctl.usecases.network.ports import with_networks
from vgpuctl.usecases.observed.guest_driver import with_image_driver
from vgpuctl.usecases.observed.observations import readings_in_words
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.placement.named_things import look_up, only_hosts_know
from vgpuctl.usecases.placement.preemption import find_eviction
from vgpuctl.usecases.placement.quota import refuse_early
from vgpuctl.usecases.placement.reservations import bookings_of, promises_to_others
from vgpuctl.usecases.placement.usable_hosts import refuse_unknown_host, silent_hosts
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.seats.licences import refuse_without_seats


@dataclass(frozen=True)
class GpuAnswer:
    """The answer of one GPU, or of a whole host (gpu None). code None: it takes at least a part of the request."""

    host: str
    gpu: str | None
    board: str | None
    code: str | None = None
    reason: str | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class ExplainedVm:
    """vm: the one that is there, its own shares counted as free. placement: where it would go now, None for nowhere.

    is_quota_checked: False without a tenant; then hosts of every pool count, and neither quota, licence nor preemption
    is looked at. quota, licence: why the tenant's quota or the licences refuse it. changes: each alone would admit it.
    failures: hosts that did not answer. eviction: VMs that `create-vm --preempt` would preempt, and where it would go
    then. seen: by host, its last answer in words, with its age. loads: of GPUs, where the policy looks at them;
    loads_problem: why none of the last hour. predictions: throughput on each GPU that takes it, where that was asked;
    model_at: when the model was fitted, seconds since the epoch; model_problem: why the policy has none. queued: where
    it waits in the queue. partition: the one of an NVSwitch fabric that it would have. time_unmeasured: why nobody
    would measure the time that it loses to neighbours on its GPUs.
    """

    request: VmRequest
    vm: Vm | None
    leases: tuple[Lease, ...]
    policy: str
    placement: Placement | None
    quota: str | None
    answers: tuple[GpuAnswer, ...]
    changes: tuple[FittingChange, ...]
    failures: tuple[tuple[str, VgpuctlError], ...]
    eviction: Eviction | None = None
    seen: Mapping[str, str] = field(default_factory=dict)
    loads: tuple[GpuLoad, ...] = ()
    loads_problem: str | None = None
    predictions: tuple[GpuPrediction, ...] = ()
    model_at: float | None = None
    model_problem: str | None = None
    licence: str | None = None
    is_quota_checked: bool = True
    queued: QueueEntry | None = None
    not_looked_at: tuple[str, ...] = ()
    partition: FabricPartition | None = None
    time_unmeasured: str | None = None

    @property
    def fits(self) -> bool:
        """The verdict: a host takes it, and neither quota nor licences refuse it."""
        return self.placement is not None and self.quota is None and self.licence is None


def find_explained(services: Services, tenant: str, name: str) -> tuple[VmRequest, Vm | None, QueueEntry | None]:
    """The request under a name, of a VM or of one that waits in the queue. Raises NotFound.

    The entry is that of a VM that waits, also of one that exists and waits to start again.
    """
    with services.store.reading() as session:
        entry, vm = session.queued(tenant, name), session.vm(tenant, name)
    if vm is None and entry is not None:
        return next(one for one in entry.requests if one.name == name), None, entry
    vm, _leases = find_vm(services, tenant, name)
    return vm.request, vm, entry


def explain_vm(
    services: Services,
    request: VmRequest,
    *,
    vm: Vm | None = None,
    queued: QueueEntry | None = None,
    refresh: bool = False,
    predict: bool = False,
) -> ExplainedVm:
    """Answer for a request, or for a VM of the store as a new one. Writes only the cache of facts.

    request.tenant: empty for a hypothetical VM of nobody. predict: also tell its throughput on each GPU.
    Raises NotFound for the tenant, and for the model of throughput when it was asked, InventoryError without any host,
    UsageError for an unknown type.
    """
    has_tenant = bool(request.tenant)
    model = read_model(services.performance()) if predict else None
    with services.store.reading() as session:
        if has_tenant:
            session.tenant(request.tenant)
        closed = dict(closed_hosts(request.tenant, session.host_pools())) if has_tenant else {}
        request = with_image_driver(
            session, request if vm is None or replace(request, labels=vm.request.labels) != vm.request else vm.as_known
        )
    names = services.hosts()
    refuse_unknown_host(services, request.host, names)
    if vm is None:
        request, unseen = look_up(services, request)
    else:
        with services.store.reading() as session:
            unseen = tuple(only_hosts_know(session, request))
        request = with_networks(services, request)
    seen = survey(services, names, refresh=refresh)
    refuse_unknown(request, [one.facts for one in seen.capacities])
    silent = silent_hosts(services, seen)
    measured = read_measurements(services, request, seen.capacities)
    with services.store.reading() as session:
        leases = session.leases()
        vms = session.vms()
        view = last_view(session, measured, request, seen.capacities)
        now = session.now()
        ages = readings_in_words(session, [one.name for one in seen.capacities])
        promises = promises_to_others(session, now, vm)
        bookings = [one for one in bookings_of(session) if vm is None or one.vm_uuid != vm.uuid]
    own = tuple(lease for lease in leases if vm is not None and lease.vm_uuid == vm.uuid)
    left = [lease for lease in leases if lease not in own]
    capacities = [
        _without(capacity, vm, own) for capacity in seen.capacities if capacity.name not in {*closed, *silent}
    ]
    taken = promised_leases(left, promises, now, request.duration_s)
    fleet = Fleet(capacities, taken, view=view)
    placement = fleet.place(request)
    changes: list[FittingChange] = []
    if placement is None:
        others = _candidates([one for one in vms if vm is None or one.uuid != vm.uuid], left)
        changes = changes_that_admit(request, capacities, taken, others)
        changes += changes_in_time(request, capacities, left, _but_own(bookings, promises), now)
        changes.sort(key=lambda one: (one.effort, one.text))
    rejections = rejections_with_promises(request, fleet, Fleet(capacities, left), promises, now)
    for capacity in seen.capacities:
        if capacity.name in closed:
            rejections.append(_refuse_pool(capacity.name, closed[capacity.name], request.tenant))
        elif capacity.name in silent:
            rejections.append(silent[capacity.name])
    return ExplainedVm(
        request=request,
        vm=vm,
        leases=own,
        policy=str(fleet.policy_for(request)),
        placement=placement,
        quota=_ask_quota(services, request) if vm is None and has_tenant else None,
        answers=tuple(_answers(seen.capacities, rejections)),
        changes=tuple(changes),
        failures=seen.failures,
        eviction=find_eviction(services, [request], capacities)
        if placement is None and vm is None and has_tenant
        else None,
        seen=ages,
        loads=tuple(measured.loads_of(view, left, seen.capacities)),
        loads_problem=measured.loads_problem,
        predictions=()
        if model is None
        else tuple(predict_candidates(request, capacities, taken, FleetView(model=model, workloads=workloads_of(vms)))),
        model_at=None if model is None else model.made_at,
        model_problem=measured.model_problem,
        licence=_ask_licence(services, request, vm, placement) if has_tenant else None,
        is_quota_checked=has_tenant,
        not_looked_at=unseen,
        queued=queued,
        partition=_partition(placement, capacities),
        time_unmeasured=None if placement is None else _time_unmeasured(placement),
    )


def _time_unmeasured(placement: Placement) -> str | None:
    return next((why for share in placement.shares if (why := why_time_unmeasured(share)) is not None), None)


def _partition(placement: Placement | None, capacities: Sequence[HostCapacity]) -> FabricPartition | None:
    for capacity in capacities:
        if placement is not None and capacity.name == placement.host:
            return told_partition(placement.shares, capacity.facts)[0]
    return None


def _but_own(bookings: Sequence[Booking], promises: Sequence[Booking]) -> list[Booking]:
    """The shares that are taken, and those promised to others."""
    return [*(one for one in bookings if one.vm_uuid is not None), *promises]


def _without(capacity: HostCapacity, vm: Vm | None, own: Sequence[Lease]) -> HostCapacity:
    """The host as if the VM were not there."""
    if vm is None or vm.host != capacity.name:
        return capacity
    holds_memory = vm.state is not VmState.STOPPED or bool(own)
    footprint = footprint_of_vm(vm, own)
    promised = [footprint] if holds_memory else []
    running = [footprint] if vm.state is VmState.RUNNING else []
    return replace(
        with_promised(capacity, less=promised),
        facts=relieve(capacity.facts, [lease.share for lease in own], [vm.uuid], running),
        groups=capacity.groups - {(vm.request.tenant, vm.request.constraints.group or "")},
    )


def _candidates(vms: Sequence[Vm], leases: Sequence[Lease]) -> list[Candidate]:
    """Every VM, whoever may be asked to go: what would help is told, and nobody is stopped."""
    return [
        Candidate(
            vm_uuid=vm.uuid,
            name=vm.printed_name,
            host=vm.host,
            priority=vm.request.priority,
            work_s=0.0,
            footprint=footprint_of_vm(vm, own) if vm.state is VmState.RUNNING else NO_FOOTPRINT,
            leases=own,
        )
        for vm in vms
        for own in [tuple(lease for lease in leases if lease.vm_uuid == vm.uuid)]
    ]


def _ask_quota(services: Services, request: VmRequest) -> str | None:
    try:
        refuse_early(services, request)
    except QuotaExceeded as refused:
        return "; ".join([refused.message, *refused.context])
    return None


def _ask_licence(services: Services, request: VmRequest, vm: Vm | None, placement: Placement | None) -> str | None:
    try:
        with services.store.reading() as session:
            shares = None if placement is None else [placement.shares]
            refuse_without_seats(session, [request], shares, uuids=() if vm is None else {vm.uuid})
    except (NoLicence, QuotaExceeded, UsageError, NotFound) as refused:
        return "; ".join([refused.message, *refused.context])
    return None


def _refuse_pool(host: str, pool: str, tenant: str) -> Rejection:
    reason = f"in pool {pool}, which is not granted to {tenant}"
    return Rejection(host, None, str(Code.HOST_POOL), reason, f"run `vgpuctl grant-host-pool {pool} {tenant}`")


def _answers(capacities: Sequence[HostCapacity], rejections: Sequence[Rejection]) -> list[GpuAnswer]:
    """One for each GPU of a host that takes part, in order; one for a host that refuses as a whole."""
    by_place = {(one.host, one.gpu): one for one in rejections}
    known = {capacity.name for capacity in capacities}
    answers = [
        GpuAnswer(one.host, None, None, one.code, one.reason, one.remedy) for one in rejections if one.host not in known
    ]
    for capacity in capacities:
        whole = by_place.get((capacity.name, None))
        if whole is not None:
            answers.append(GpuAnswer(whole.host, None, None, whole.code, whole.reason, whole.remedy))
        for gpu in sorted(capacity.facts.gpus, key=lambda one: one.address):
            refused = by_place.get((capacity.name, gpu.address))
            if refused is not None:
                answers.append(
                    GpuAnswer(refused.host, gpu.address, gpu.name, refused.code, refused.reason, refused.remedy)
                )
            elif whole is None or whole.code == Code.NOT_TOGETHER:
                answers.append(GpuAnswer(capacity.name, gpu.address, gpu.name))
        if whole is None and not capacity.facts.gpus:
            answers.append(GpuAnswer(capacity.name, None, None))
    return answers
