# SPDX-License-Identifier: Apache-2.0
"""Invariants after every step of a replayed day, checked without the product's rules.

The store is read for what it promises (VMs, leases, the ledger, quotas, reservations), the machines' own files and the
agent for what is there, and the catalogue for what a card takes. Each check yields one sentence per fault.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.node_pool import Node, NodePool
from vgpuctl.model.queue import QueueEntry, QueueKind
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.quota.host_pools import HostPool
from vgpuctl.quota.limits import Quota
from vgpuctl.quota.usage import Interval
from vgpuctl.store.store import Store
from vgpuctl_lab.simulated.machine.shape import PASSTHROUGH, CardShape
from vgpuctl_lab.simulated.machine.state import MachineFolder

Device = tuple[str, str]
"""What a host has made for somebody: the mdev's UUID or the function, and its vGPU type's id or `vfio-pci`."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """The store at one moment."""

    vms: Sequence[Vm]
    leases: Sequence[Lease]
    intervals: Sequence[Interval]
    quotas: Mapping[str, Sequence[Quota]]
    reservations: Sequence[Reservation]
    queue: Sequence[QueueEntry]
    pools: Sequence[HostPool]
    open_operations: int
    node_pools: Sequence[NodePool] = ()
    nodes: Sequence[Node] = ()

    def vm(self, tenant: str, name: str) -> Vm | None:
        """A VM by its names."""
        return next((vm for vm in self.vms if (vm.request.tenant, vm.request.name) == (tenant, name)), None)

    def waits(self, tenant: str, name: str) -> bool:
        """True if a VM waits in the queue."""
        return any((one.request.tenant, one.request.name) == (tenant, name) for one in self.queue)


def look(store: Store) -> Seen:
    """Read all of it in one transaction."""
    with store.reading() as session:
        return Seen(
            session.vms(),
            session.leases(),
            session.intervals(0, 2**40),
            {one.name: session.quotas(one.name) for one in session.tenants()},
            session.reservations(),
            session.queue(),
            session.host_pools(),
            len(session.open_operations()),
            session.node_pools(),
            session.nodes(),
        )


def faults(before: Seen, seen: Seen, machines: Mapping[str, MachineFolder], now: float) -> Iterator[str]:
    """Everything that does not hold after a step that changed `before` to `seen`."""
    by_host: dict[str, list[Lease]] = defaultdict(list)
    for lease in seen.leases:
        by_host[lease.host].append(lease)
    yield from _vms(seen)
    yield from _ledger(before, seen)
    yield from _quotas(seen)
    yield from _gpu_hours(before, seen, now)
    yield from _reservations(seen, now)
    yield from _nodes(seen)
    closed = {host: pool for pool in seen.pools for host in pool.hosts}
    old = {vm.uuid for vm in before.vms}
    for vm in seen.vms:
        if vm.uuid not in old and vm.host in closed and vm.request.tenant not in closed[vm.host].tenants:
            yield f"{vm.domain_name} was put on {vm.host} of pool {closed[vm.host].name}, which is not granted"
    for name, machine in machines.items():
        yield from _cards(name, machine, by_host[name])
        yield from _machine(name, machine, by_host[name], [vm for vm in seen.vms if vm.host == name])


def _nodes(seen: Seen) -> Iterator[str]:
    """A node is one of a pool's names, and has a VM or waits for it; no pool has more than its maximum."""
    pools = {(one.tenant, one.name): one for one in seen.node_pools}
    vms = {(vm.request.tenant, vm.request.name): vm for vm in seen.vms}
    waiting = {(one.tenant, one.name) for entry in seen.queue for one in entry.requests}
    for node in seen.nodes:
        pool, vm = pools.get((node.tenant, node.pool)), vms.get((node.tenant, node.name))
        if pool is None:
            yield f"node {node.printed_name} is of pool {node.pool}, which is not there"
            continue
        if vm is None and (node.tenant, node.name) not in waiting and not node.is_leaving:
            yield f"node {node.printed_name} has no VM, and does not wait for one"
        if vm is not None and vm.uuid != node.vm_uuid:
            yield f"node {node.printed_name} has VM {vm.uuid}, not {node.vm_uuid}"
        if vm is not None and vm.request.gpus != pool.request.gpus:
            yield f"node {node.printed_name} has {vm.request.gpus}, its pool {pool.request.gpus}"
    for (tenant, name), pool in pools.items():
        there = [one for one in seen.nodes if (one.tenant, one.pool) == (tenant, name) and not one.is_leaving]
        if len(there) > pool.maximum:
            yield f"node pool {pool.printed_name} has {len(there)} nodes, its maximum is {pool.maximum}"
    named = {(one.tenant, one.name) for one in seen.nodes}
    for (tenant, vm_name), vm in vms.items():
        of_pool = [one for one in pools.values() if one.tenant == tenant and one.number_of(vm_name) is not None]
        if of_pool and (tenant, vm_name) not in named:
            yield f"{vm.domain_name} is named as a node of {of_pool[0].printed_name}, which does not know it"


def told_by_agent(facts: HostFacts) -> set[Device]:
    """The devices that the agent finds made on a host."""
    found: set[Device] = set()
    for gpu in facts.gpus:
        found |= {(mdev.uuid, _number(mdev.type_id)) for mdev in gpu.mdevs}
        found |= {(vf.address, vf.current_type) for vf in gpu.vfs if vf.current_type is not None}
        if gpu.driver == "vfio-pci":
            found.add((gpu.address, "vfio-pci"))
    return found


def in_machine(machine: MachineFolder) -> set[Device]:
    """The devices that a machine's own files have."""
    state = machine.state()
    found = {(vgpu.uuid or vgpu.function, str(vgpu.type_id)) for vgpu in state.vgpus}
    for card in machine.shape.cards:
        if state.drivers.get(card.address) == "vfio-pci":
            found.add((card.address, "vfio-pci"))
    return found


def _leased(leases: Sequence[Lease]) -> list[Device]:
    """The devices of the leases. A whole card is the host's again while its VM is stopped: libvirt manages it.

    One that is attached at the next start has no device yet; a running guest has those that are to be detached.
    """
    return [
        (one.share.vfio_device, _number(one.share.type_id) if one.share.type_id else "vfio-pci")
        for one in leases
        if (one.share.sharing is not Sharing.PASSTHROUGH and one.state is not LeaseState.RESERVED) or _is_held(one)
    ]


def _is_held(lease: Lease) -> bool:
    """True if a guest that runs has the device."""
    return lease.state in (LeaseState.RUNNING, LeaseState.RELEASING)


def _number(type_id: str) -> str:
    return type_id.rpartition("-")[2]


_KEPT = {LeaseState.BUILT, LeaseState.RESERVED}
"""Of a VM that is off: what it keeps, and GPUs that were attached for its next start."""


def _vms(seen: Seen) -> Iterator[str]:
    if seen.open_operations:
        yield f"{seen.open_operations} operations of dead runs are open"
    own: dict[str, list[Lease]] = defaultdict(list)
    for lease in seen.leases:
        own[lease.vm_uuid].append(lease)
    for vm in seen.vms:
        leases = own.pop(vm.uuid, [])
        wanted = sum(gpu.count for gpu in vm.request.gpus)
        if vm.state is VmState.RUNNING:  # a GPU that is detached leaves at the stop, one that is attached comes then
            leases = [one for one in leases if one.state is not LeaseState.RELEASING]
            wanted -= sum(one.state is LeaseState.RESERVED for one in leases)
            leases = [one for one in leases if one.state is not LeaseState.RESERVED]
        states = {lease.state for lease in leases}
        if vm.state is VmState.RUNNING and (len(leases) != wanted or states - {LeaseState.RUNNING}):
            yield f"{vm.domain_name} runs with {len(leases)} leases of {wanted}, {sorted(states)}"
        elif vm.state is VmState.STOPPED and leases and (len(leases) != wanted or states - _KEPT):
            yield f"{vm.domain_name} is stopped with {len(leases)} leases of {wanted}, {sorted(states)}"
        elif vm.state not in (VmState.RUNNING, VmState.STOPPED):
            yield f"{vm.domain_name} is {vm.state}: {vm.problem}"
        if {lease.host for lease in leases} - {vm.host}:
            yield f"{vm.domain_name} of {vm.host} has leases on other hosts"
    for lease in (one for rest in own.values() for one in rest):
        yield f"lease {lease.id} of {lease.vm_name} has no VM"
    for entry in seen.queue:
        if entry.kind is QueueKind.CREATE and seen.vm(entry.request.tenant, entry.request.name) is not None:
            yield f"{entry.name} waits in the queue and is there"


def _ledger(before: Seen, seen: Seen) -> Iterator[str]:
    counted = Counter(
        (one.lease_id, one.tenant, one.vm_uuid, one.host, one.gpu, one.profile)
        for one in seen.intervals
        if one.ended_at is None
    )
    held = Counter(
        (one.id, one.tenant, one.vm_uuid, one.host, one.share.gpu, one.share.profile)
        for one in seen.leases
        if one.state is not LeaseState.RESERVED
    )
    for what in counted - held:
        yield f"the ledger counts {what}, which no lease explains"
    for what in held - counted:
        yield f"the ledger does not count the lease {what}"
    if any(one.ended_at is not None and one.ended_at < one.begun_at for one in seen.intervals):
        yield "an interval of the ledger ends before it begins"
    ended = {(one.lease_id, one.begun_at, one.ended_at) for one in before.intervals if one.ended_at is not None}
    if lost := ended - {(one.lease_id, one.begun_at, one.ended_at) for one in seen.intervals}:
        yield f"{len(lost)} ended intervals of the ledger changed or are gone"


def _quotas(seen: Seen) -> Iterator[str]:
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for vm in seen.vms:
        used[vm.request.tenant].update(vms=1, vcpus=vm.request.vcpus, memory=vm.request.memory_mib)
    for lease in seen.leases:
        used[lease.tenant].update(framebuffer=lease.share.framebuffer_mib or 0)
        whole = lease.share.sharing is Sharing.PASSTHROUGH
        used[lease.tenant]["cards" if whole else f"shares:{lease.share.profile}"] += 1
    for tenant, quotas in seen.quotas.items():
        for quota in quotas:
            if quota.limit is not None and used[tenant][quota.resource] > quota.limit:
                yield f"{tenant} uses {used[tenant][quota.resource]} of {quota.limit} {quota.resource}"


def _gpu_hours(before: Seen, seen: Seen, now: float) -> Iterator[str]:
    """Every tenant that got a share in this step had GPU-hours left in this month."""
    old = {lease.id for lease in before.leases}
    month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0).timestamp()
    for tenant in {lease.tenant for lease in seen.leases if lease.id not in old}:
        limit = next((one.limit for one in seen.quotas[tenant] if one.resource == "gpu-hours"), None)
        seconds = sum(
            max(0.0, (now if one.ended_at is None else one.ended_at) - max(one.begun_at, month)) * one.card_part
            for one in before.intervals
            if one.tenant == tenant
        )
        if limit is not None and seconds > limit:
            yield f"{tenant} got a share after {seconds / 3600:.2f} of {limit / 3600:.2f} GPU-hours"


def _reservations(seen: Seen, now: float) -> Iterator[str]:
    """In its window what is reserved is held by nobody else whose time is not over."""
    ends = {vm.uuid: vm.ends_at for vm in seen.vms}
    for one in seen.reservations:
        if not one.begin <= now < one.end:
            continue
        functions = {held.function for held in one.shares if held.sharing is not Sharing.MDEV}
        for lease in seen.leases:
            end = ends.get(lease.vm_uuid)
            is_over = lease.vm_uuid == one.vm_uuid or (end is not None and end <= now)
            if lease.host == one.host and lease.share.function in functions and not is_over:
                yield f"{lease.tenant}/{lease.vm_name} holds what is reserved as {one.tenant}/{one.name}"


def _cards(host: str, machine: MachineFolder, leases: Sequence[Lease]) -> Iterator[str]:
    """The catalogue's rules for cards where all vGPUs are of one size."""
    state = machine.state()
    for card in machine.shape.cards:
        where = f"{host} {card.address}"
        board = catalog.board_by_pci(card.vendor, card.device, card.subsystem)
        assert board is not None, f"{card.model} is not in the catalogue"
        made = [vgpu for vgpu in state.vgpus if vgpu.card == card.address]
        types = [card.type_of(vgpu.type_id) for vgpu in made]
        names = [None if one is None else one.full_name.rpartition(" ")[2] for one in types]
        yield from _one_card(f"{where}, devices", board, names)
        for function, count in Counter(vgpu.function for vgpu in made if vgpu.uuid is None).items():
            if count > 1:
                yield f"{where}: {function} carries {count} vGPUs"
        here = [lease.share for lease in leases if lease.share.gpu == card.address]
        shares = [held for held in here if held.sharing is not Sharing.PASSTHROUGH]
        yield from _one_card(f"{where}, leases", board, [held.profile for held in shares])
        if len(shares) < len(here) and len(here) > 1:
            yield f"{where} is given away whole, and {len(here) - 1} times more"


def _one_card(where: str, board: catalog.Board, names: Sequence[str | None]) -> Iterator[str]:
    types = [None if name is None else catalog.type_by_name(board, name) for name in names]
    known = [one for one in types if one is not None]
    if len(known) != len(types):
        yield f"{where}: {names} are not types of {board.name}"
    if len({one.fb_mib for one in known}) > 1:
        yield f"{where}: vGPUs of different sizes, {names}"
    if known and len(known) > min(one.max_instances for one in known):
        yield f"{where}: {len(known)} vGPUs {names}"
    if sum(one.fb_mib for one in known) > board.memory_mib:
        yield f"{where}: {sum(one.fb_mib for one in known)} MiB promised of {board.memory_mib}"


def _machine(host: str, machine: MachineFolder, leases: Sequence[Lease], vms: Sequence[Vm]) -> Iterator[str]:
    """Devices = leases, processes = running VMs, drivers as the leases want them, memory not promised twice."""
    state = machine.state()
    made, leased = in_machine(machine), Counter(_leased(leases))
    if made != set(leased) or leased.total() != len(leased):
        yield f"{host} has {sorted(made - set(leased))} beside its leases, and lacks {sorted(set(leased) - made)}"
    for card in machine.shape.cards:
        yield from _drivers(host, state.drivers, card, leases)
    running = {vm.uuid for vm in vms if vm.state is VmState.RUNNING}
    if set(state.domains) != running:
        yield f"{host} runs {set(state.domains) - running} beside its VMs, and lacks {running - set(state.domains)}"
    for uuid, domain in state.domains.items():
        own = {one.share.vfio_device for one in leases if one.vm_uuid == uuid and one.state is not LeaseState.RESERVED}
        companions = {address for one in leases if one.vm_uuid == uuid for address in one.share.companions}
        if not own <= {*domain.mdevs, *domain.functions} <= own | companions:
            yield f"{host}: {domain.name} holds {domain.mdevs + domain.functions}, and its leases say {sorted(own)}"
    holding = {lease.vm_uuid for lease in leases}
    promised = sum(vm.request.memory_mib for vm in vms if vm.uuid in running | holding)
    if promised > machine.shape.memory_mib:
        yield f"{host} has promised {promised} MiB of its {machine.shape.memory_mib}"


def _drivers(host: str, drivers: Mapping[str, str | None], card: CardShape, leases: Sequence[Lease]) -> Iterator[str]:
    if card.interface != PASSTHROUGH:
        return
    is_used = any(one.share.gpu == card.address and _is_held(one) for one in leases)
    for address, own in [(card.address, card.driver), *((one.address, one.driver) for one in card.companions)]:
        expected = "vfio-pci" if is_used else own
        if drivers.get(address) != expected:
            yield f"{host} {address} is bound to {drivers.get(address)}, not to {expected}"
