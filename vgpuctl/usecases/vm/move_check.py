# SPDX-License-Identifier: Apache-2.0
"""Whether, and how, a VM can go to each other host. Nothing is written on any host; facts that were read are kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.pki import MoveCertificates
from vgpuctl.errors import HostError, NoCapacity, VgpuctlError
from vgpuctl.guests.facts import move_facts
from vgpuctl.model.event import EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, without_leaving
from vgpuctl.model.move_link import MoveNetwork
from vgpuctl.model.move_verdict import MoveVerdict
from vgpuctl.model.natural_order import natural
from vgpuctl.model.network import Attachment
from vgpuctl.model.node_pool import NodePool
from vgpuctl.model.placement import Placement
from vgpuctl.model.times import format_time
from vgpuctl.model.units import MIB
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.model.volume import VolumeKind
from vgpuctl.ovn.certificate_ends import certificate_names, end_of
from vgpuctl.planner.moves.case import HostProcessor, MoveCase, MovedDomain, MoveHost, MoveTransfer, MovingVm
from vgpuctl.planner.moves.judge import judge_move
from vgpuctl.sharing.codes import Code
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.guest_state import refuse_other_build, variables_on
from vgpuctl.usecases.network.ports import attachments_of
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.shares import describe_share
from vgpuctl.usecases.vm.live_move import link_between
from vgpuctl.usecases.vm.move_place import MoveSearch
from vgpuctl.usecases.vm.move_volumes import plan_volumes, recorded_volumes
from vgpuctl.usecases.vm.move_witnesses import compare, move_host, moved_gpu, shares_of
from vgpuctl.usecases.vm.pending_gpus import is_pending

_LOOK_OF_CODE = {
    Code.HOST_POOL: "host-closed",
    Code.HOST_MAINTENANCE: "cordon",
    Code.HOST_CORDONED: "cordon",
    Code.HOST_DRAINED: "cordon",
    Code.HOST_FENCED: "cordon",
    Code.GPU_CORDONED: "cordon",
    Code.GPU_QUARANTINE: "gpu-health",
    Code.GPU_PROBLEM: "gpu-health",
    Code.RESERVED_IN_CALENDAR: "reservation",
    Code.HOST_SILENT: "host-silent",
    Code.HOST_UNREAD: "host-silent",
    Code.HOST_FIRMWARE: "host-parts",
    Code.HOST_TPM: "host-parts",
    Code.HOST_CHASSIS: "network",
}
"""The rule of a refusal of the scheduler; every other one says that the host has no equal share."""
_PLACED = ("host-silent", "host-closed", "cordon", "gpu-health", "reservation", "licence", "no-equal-share")
"""Rules that the scheduler has asked when it places a VM. A licence's seat stays with the VM."""
_LOOKED_THERE = ("name-taken", "mac-taken", "network", "host-parts", "disks")
"""Rules about which the other host is asked, for a cold move too."""


@dataclass(frozen=True)
class _Source:
    """What is known of the VM and its host, once for all others. xml: of its domain, None for one that is off."""

    vm: Vm
    leases: tuple[Lease, ...]
    attachments: Sequence[Attachment]
    moving: MovingVm
    facts: HostFacts
    host: MoveHost
    xml: str | None
    domain: MovedDomain
    dirty_bytes_s: int | None


def check_move(
    services: Services,
    vm: Vm,
    to: str | None = None,
    *,
    gpus: Sequence[str] = (),
    max_downtime_s: float | None = None,
    trusts_hosts: bool = False,
) -> list[tuple[str, MoveVerdict]]:
    """Judge a move of a VM to one host, or to each other host of the inventory: the kindest first.

    gpus: the addresses of the only GPUs that may be, of the host `to`; () for all.
    max_downtime_s: the longest stop, instead of the VM's own. trusts_hosts: also between hosts where a move has lost
    the state of a vGPU before. A host that gives no answer has a verdict
    that says so. Raises InventoryError for an unknown host, and what the VM's own host raises when it cannot be asked.
    """
    if to is not None:
        services.inventory.require(to)
    names = [one for one in (services.inventory.select(None) if to is None else [to]) if one != vm.host]
    source = _read_source(services, vm, max_downtime_s or vm.request.max_downtime_s)
    search = MoveSearch(services, vm.host, names)
    placed = {name: _place(search, vm, name, gpus) for name in names}

    def judge(name: str) -> MoveVerdict:
        mbit_s, between = _between(services, vm.host, name)
        link = MoveTransfer(mbit_s, vm.request.memory_mib * MIB, source.dirty_bytes_s)
        found = placed[name]
        if isinstance(found, VgpuctlError):
            case = _case_without_place(source, name, _refusal(found), link)
        else:
            case = _case(services, source, name, gpus, link)
        lost = "" if trusts_hosts or not source.leases else lost_before(services, case.here, case.there)
        return judge_move(replace(case, looks={**case.looks, **between, "lost-before": lost}))

    refused = [(name, judge(name)) for name, found in placed.items() if isinstance(found, VgpuctlError)]
    asked = services.on_hosts([name for name in names if isinstance(placed[name], Placement)], judge)
    found = [*refused, *((one.name, verdict) for one in asked if (verdict := one.get()) is not None)]
    return sorted(found, key=lambda one: (one[1].kind.rank(), len(one[1].limits), natural(one[0])))


def _between(services: Services, here: str, there: str) -> tuple[int | None, Mapping[str, str]]:
    """The bandwidth for moves between two hosts, None where it is not declared, and what was found against them."""
    try:
        link, _address = link_between(services, here, there)
    except VgpuctlError as error:
        return None, {"move-network": error.message, "move-certificates": ""}
    lacking = without_certificates(services, here, there) if link.network is MoveNetwork.TLS else ""
    known = {} if lacking is None else {"move-certificates": lacking}
    return link.bandwidth_mbps, {"move-network": "", **known}


def without_certificates(services: Services, source: str, target: str) -> str | None:
    """Say which hosts lack what QEMU needs for TLS, by what was read of them last; None where nobody looked.

    QEMU of the source wants the address by which it reaches the target to be in the target's certificate.
    """
    with services.store.reading() as session:
        known = {name: session.facts(name) for name in (source, target)}
    address = {target: services.inventory.move_address(target)}
    found = []
    for name, one in known.items():
        there = None if one is None else one.facts.move_certificates
        if there is None:
            return None
        fault = _fault_of(there, services.store.now(), address.get(name))
        found += [f"{name}: {fault}"] if fault else []
    return "; ".join(found)


def _fault_of(there: MoveCertificates, now: float, address: str | None) -> str:
    if there.missing:
        return f"{', '.join(there.missing)} of QEMU are not in {there.folder}"
    if not there.is_readable:
        return f"QEMU cannot read its keys in {there.folder}"
    certificate = (there.certificate or "").encode()
    try:
        ends_at, names = end_of(certificate), certificate_names(certificate)
    except ValueError:
        return f"QEMU's certificate in {there.folder} cannot be read"
    if ends_at <= now:
        return f"QEMU's certificate in {there.folder} ended on {format_time(ends_at)} UTC"
    if address is not None and not any(_is_named(address, one) for one in names):
        return f"QEMU's certificate in {there.folder} is for {', '.join(names)}, and not for {address}"
    return ""


def _is_named(address: str, name: str) -> bool:
    """True if a name of a certificate is this address, or stands for it with an asterisk."""
    wanted, given = address.lower(), name.lower()
    return wanted == given or (given.startswith("*.") and wanted.partition(".")[2] == given[2:])


def lost_before(services: Services, here: MoveHost, there: MoveHost) -> str:
    """Say when a move between two hosts has lost the state of a vGPU, if both have the drivers that they had then."""
    with services.store.reading() as session:
        events = session.events(None, EventFilter(kinds=(EventKind.VGPU_STATE_LOST,)))
    for one in events:
        then = {str(one.before.get(key)) for key in ("from_host", "to_host")}
        drivers = {str(one.before.get(key)) for key in ("from_driver", "to_driver")}
        if then == {here.name, there.name} and drivers == {str(here.driver), str(there.driver)}:
            return f"a move from {one.before['from_host']} to {one.before['to_host']} lost the state of a vGPU on " + (
                f"{format_time(one.at)} UTC, and their drivers are the same"
            )
    return ""


def _place(search: MoveSearch, vm: Vm, name: str, gpus: Sequence[str]) -> Placement | VgpuctlError:
    """Choose equal shares on one host, by what is known of it."""
    if name in search.failures:
        return search.failures[name]
    try:
        return search.find(vm, lambda found: found, among={name}, gpus=gpus)
    except VgpuctlError as error:
        return error


def _read_source(services: Services, vm: Vm, max_downtime_s: float | None) -> _Source:
    live = _leases_of(services, vm)
    leases = without_leaving(live)
    attachments = attachments_of(services, vm)
    facts = read_facts(services, vm.host)
    hypervisor = services.host(vm.host).hypervisor
    state = hypervisor.state(vm.domain_name, uuid=vm.uuid)
    is_running = state is not None and state.is_active()
    here = move_host(vm.host, facts, *move_facts.read_host(hypervisor), [one.share.gpu for one in leases])
    moving = _moving(services, vm, attachments, max_downtime_s, is_running=is_running)
    if not is_running:
        return _Source(vm, leases, attachments, moving, facts, here, None, MovedDomain(), None)
    domain = move_facts.read_moved_domain(hypervisor, vm.uuid, own=shares_of(live))
    xml, rate = hypervisor.xml(vm.domain_name), move_facts.read_dirty_rate(hypervisor, vm.uuid)
    return _Source(vm, leases, attachments, moving, facts, here, xml, domain, rate)


def judge_by_kept_facts(services: Services, vm: Vm, to: str | None, against: str = "") -> MoveVerdict:
    """Judge a move of a VM to a host where a plan has found a place for it, by what the store has. No host is asked.

    What only the hosts can tell is a limit of its own, so a running VM's verdict is never `live`. to: None for a VM
    that has no place; against: why.
    """
    attachments, leases = attachments_of(services, vm), without_leaving(_leases_of(services, vm))
    with services.store.reading() as session:
        known, there = session.facts(vm.host), None if to is None else session.facts(to)
    facts = None if known is None else known.facts
    here = move_host(vm.host, facts, None, None, [one.share.gpu for one in leases])
    moving = _moving(services, vm, attachments, vm.request.max_downtime_s, is_running=vm.state is VmState.RUNNING)
    placement = None if to is None else _place(MoveSearch(services, vm.host, [to]), vm, to, ())
    if to is None or there is None or not isinstance(placement, Placement):
        looks = {"quota": "", "no-equal-share": against or str(placement)}
        gpus = tuple(moved_gpu(one, None, facts, None, None) for one in leases)
        target = MoveHost("other hosts" if to is None else to)
        return judge_move(MoveCase(moving, here, target, gpus, MovedDomain(), MoveTransfer(None, 0, None), looks))
    bandwidth, between = _between(services, vm.host, to)
    gpus = tuple(
        moved_gpu(lease, share, facts, there.facts, None)
        for lease, share in zip(leases, placement.shares, strict=False)
    )
    target = move_host(to, there.facts, None, None, [one.gpu for one in placement.shares])
    looks = {
        **dict.fromkeys(("quota", *_PLACED, *_LOOKED_THERE), ""),
        "guest-cells": _other_cells(vm, placement),
        "lost-before": lost_before(services, here, target),
        **between,
    }
    link = MoveTransfer(bandwidth, vm.request.memory_mib * MIB, None)
    return judge_move(MoveCase(moving, here, target, gpus, MovedDomain(), link, looks))


def _leases_of(services: Services, vm: Vm) -> tuple[Lease, ...]:
    with services.store.reading() as session:
        return tuple(sorted(session.leases(vm_uuid=vm.uuid), key=lambda one: one.index))


def _moving(
    services: Services, vm: Vm, attachments: Sequence[Attachment], max_downtime_s: float | None, *, is_running: bool
) -> MovingVm:
    with services.store.reading() as session:
        volumes, leases = session.volumes(vm_uuid=vm.uuid, host=vm.host), session.leases(vm_uuid=vm.uuid)
        node = session.node_of_vm(vm.uuid)
        pool = None if node is None else session.node_pool(node.tenant, node.pool)
    bound = [one.network.printed_name for one in attachments if one.network.request.host is not None]
    return MovingVm(
        vm.printed_name,
        is_running=is_running,
        unfinished=vm.unfinished,
        is_adopted=vm.is_adopted,
        declared_host=vm.request.host,
        network=bound[0] if bound else None,
        is_suspended=vm.is_suspended,
        must_restart=vm.must_restart,
        has_disk_snapshots=any(one.kind is VolumeKind.OVERLAY for one in volumes),
        max_downtime_s=max_downtime_s,
        pending=tuple(describe_share(one) for one in leases if is_pending(one, was_running=is_running)),
        cluster=None if pool is None else _cluster(pool),
        gang=vm.gang,
    )


def _cluster(pool: NodePool) -> str:
    return f"the {'Kubernetes' if pool.role.is_kubernetes else 'Slurm'} cluster {pool.cluster} (node pool {pool.name})"


def _case_without_place(source: _Source, name: str, looks: Mapping[str, str], link: MoveTransfer) -> MoveCase:
    """A move to a host that has no place for the VM, or does not answer."""
    gpus = tuple(moved_gpu(one, None, source.facts, None, None) for one in source.leases)
    return MoveCase(source.moving, source.host, MoveHost(name), gpus, source.domain, link, {"quota": "", **looks})


def _case(services: Services, source: _Source, name: str, wanted: Sequence[str], link: MoveTransfer) -> MoveCase:
    """Ask a host that has a place for the VM, on the wanted GPUs. What it does not tell stays unknown."""
    vm, domain = source.vm, source.domain
    try:
        facts = read_facts(services, name)
        # By what was just read: somebody may have taken the shares since.
        placement = _place(MoveSearch(services, vm.host, [name]), vm, name, wanted)
        if isinstance(placement, VgpuctlError):
            return _case_without_place(source, name, _refusal(placement), link)
        hypervisor = services.host(name).hypervisor
        machines, cpu = move_facts.read_host(hypervisor)
        if source.xml is not None and domain.cpu_mode in ("custom", "host-model"):
            domain = replace(domain, cpu_runs_there=move_facts.runs_cpu(hypervisor, source.xml))
        looks = _look_there(services, source, placement, facts, cpu)
    except VgpuctlError as error:
        return _case_without_place(source, name, {"host-silent": error.message}, link)
    iommufd = None if source.xml is None else move_facts.iommufd_devices(source.xml)
    gpus = tuple(
        moved_gpu(lease, share, source.facts, facts, iommufd)
        for lease, share in zip(source.leases, placement.shares, strict=False)
    )
    if source.moving.is_running:
        own, pairs = services.host(vm.host), zip(gpus, source.leases, placement.shares, strict=False)
        gpus = tuple(
            replace(gpu, compatibility=compare(own, lease, share, facts)) if gpu.is_vgpu else gpu
            for gpu, lease, share in pairs
        )
    there = move_host(name, facts, machines, cpu, [one.gpu for one in placement.shares])
    return MoveCase(source.moving, source.host, there, gpus, domain, link, looks)


def _refusal(error: VgpuctlError) -> Mapping[str, str]:
    """The rule of the scheduler's refusal, with its words. Refusals of several kinds say that no share is there."""
    if isinstance(error, HostError):
        return {"host-silent": error.message}
    codes = {Code(one) for one in error.codes} if isinstance(error, NoCapacity) else set()
    found = {_LOOK_OF_CODE.get(one, "no-equal-share") for one in codes - {Code.HOST_WANTED_OTHER}}
    short = error.reason_to_wait if isinstance(error, NoCapacity) else error.message
    return {found.pop() if len(found) == 1 else "no-equal-share": short}


def _look_there(
    services: Services, source: _Source, placement: Placement, facts: HostFacts, cpu: HostProcessor | None
) -> Mapping[str, str]:
    """Ask the other host what a cold move would ask it, by the codes of the rules."""
    vm, there = source.vm, services.host(placement.host)
    moved = replace(vm, host=placement.host, numa=placement.numa)
    attached = [one.port.position for one in source.attachments]

    def parts() -> None:
        own = services.host(vm.host)
        guest.check_parts(moved, facts, source.attachments)
        variables = variables_on(own, vm)
        if variables is not None:
            refuse_other_build(there, facts, moved, variables)

    def disks() -> None:
        plan_volumes(services, there, moved, recorded_volumes(services, services.host(vm.host), vm))

    looks = {"quota": "", **dict.fromkeys(_PLACED, "")}
    asked: dict[str, Callable[[], None]] = {
        "name-taken": lambda: guest.refuse_other_domain(there, moved),
        "mac-taken": lambda: guest.refuse_taken_macs(there, moved, source.attachments),
        "network": lambda: guest.check_networks(there, moved, attached),
        "host-parts": parts,
        "disks": disks,
    }
    for code, ask in asked.items():
        looks[code] = _against(ask)
    looks["guest-cells"] = _other_cells(vm, placement)
    bits = _fewer_bits(source, placement.host, cpu)
    return looks if bits is None else {**looks, "mmio-window": bits}


def _against(ask: Callable[[], None]) -> str:
    """Return what is said against the move, empty for nothing."""
    try:
        ask()
    except VgpuctlError as error:
        return error.message
    return ""


def _other_cells(vm: Vm, placement: Placement) -> str:
    """A guest keeps the NUMA nodes that it was started with."""
    here, there = vm.numa, placement.numa
    if here is None or not here.has_vnuma:
        return ""
    shape = [(one.vcpus, one.memory_mib) for one in here.cells]
    if there is not None and shape == [(one.vcpus, one.memory_mib) for one in there.cells]:
        return ""
    return f"its guest has {len(shape)} NUMA nodes, which {placement.host} does not give it alike"


def _fewer_bits(source: _Source, name: str, cpu: HostProcessor | None) -> str | None:
    """The window of a guest with its host's address bits needs as many there; None where they are not known."""
    if source.xml is None or not move_facts.has_address_bits(source.xml):
        return ""
    own = source.host.cpu
    here, there = None if own is None else own.address_bits, None if cpu is None else cpu.address_bits
    if here is None or there is None:
        return None
    return "" if there == here else f"{name} has {there} address bits, and its guest was started with {here}"
