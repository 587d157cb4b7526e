# SPDX-License-Identifier: Apache-2.0
"""The only place that builds a HostCapacity: everything that placing knows of a host.

Facts come from the host or the store's cache, promises from the store, constraints and the declared layout from the
inventory. Every use case that places, counts or explains gets its hosts from here, so that a rule about hosts holds on
every path.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import InventoryError
from vgpuctl.model.host_constraints import NO_HOST_CONSTRAINTS, HostRules
from vgpuctl.model.layout import GpuLayout
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import Footprint
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.restriction import Restriction
from vgpuctl.model.vm import VmState
from vgpuctl.scheduler.guest_place import footprint_of_vm
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.sharing.gate import without_cordon

if TYPE_CHECKING:
    from vgpuctl.inventory.load import Inventory
    from vgpuctl.store.session import Session
    from vgpuctl.usecases.observed.observations import ObservedHost
    from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class StoredPromises:
    """Promises of the store by host; both mappings answer for every host.

    footprints: of VMs that run or are on their way, and of stopped ones that keep GPUs. groups: (tenant, group) of the
    VMs. restrictions: of every host and GPU.
    """

    footprints: Mapping[str, Sequence[Footprint]]
    groups: Mapping[str, frozenset[tuple[str, str]]]
    restrictions: tuple[Restriction, ...] = ()


def read_promises(session: "Session", *, host: str | None = None, without: Collection[str] = ()) -> StoredPromises:
    """Read the promises of all hosts, or of one. without: UUIDs of VMs that do not count."""
    keeping: defaultdict[str, list[Lease]] = defaultdict(list)
    for lease in session.leases(host=host):
        keeping[lease.vm_uuid].append(lease)
    footprints: defaultdict[str, list[Footprint]] = defaultdict(list)
    groups: defaultdict[str, frozenset[tuple[str, str]]] = defaultdict(frozenset)
    for vm in session.vms_moving_live():
        if vm.live_target is not None and vm.uuid not in without:
            # It runs on both hosts until it has moved: its memory is taken on both.
            footprints[vm.live_target].append(footprint_of_vm(replace(vm, numa=None), ()))
    for vm in session.vms(host=host):
        counts = vm.state is not VmState.STOPPED or vm.is_on_its_way or vm.uuid in keeping
        if vm.uuid not in without and counts:
            footprints[vm.host].append(footprint_of_vm(vm, keeping.get(vm.uuid, ())))
        if vm.request.constraints.group is not None:
            groups[vm.host] |= {(vm.request.tenant, vm.request.constraints.group)}
    return StoredPromises(footprints, groups, tuple(session.restrictions()))


def capacity_of(
    name: str, facts: HostFacts, generation: int, promises: StoredPromises, inventory: "Inventory | None"
) -> HostCapacity:
    """Build the capacity of one host.

    generation: the store's counter, read before the facts. inventory: None where no inventory was given.
    Raises InventoryError for what the inventory says wrongly of this host.
    """
    if inventory is not None:
        inventory.health_policy(name)  # a host whose GPUs cannot be judged as declared takes no VM
    return with_promised(
        HostCapacity(
            name,
            facts,
            generation,
            constraints=NO_HOST_CONSTRAINTS if inventory is None else inventory.constraints(name),
            groups=promises.groups[name],
            declared=_declared(inventory, name),
            restrictions=_restrictions_of(name, facts, promises.restrictions),
        ),
        more=promises.footprints[name],
    )


def rules_of(services: "Services", name: str) -> HostRules:
    """Return one host's rules from inventory and store, for a share that keeps its place. Raises InventoryError."""
    with services.store.reading() as session:
        restrictions = tuple(session.restrictions())
    inventory = services.inventory
    inventory.health_policy(name)
    return HostRules(name, inventory.constraints(name), _declared(inventory, name), restrictions)


def declared_on(services: "Services", name: str) -> tuple[GpuLayout, ...]:
    """The entries of a host's layout. Raises InventoryError."""
    return _declared(services.inventory, name)


def _restrictions_of(name: str, facts: HostFacts, every: Sequence[Restriction]) -> tuple[Restriction, ...]:
    """Those of the host, and those of cards that are in it now."""
    cards = {gpu.uuid for gpu in facts.gpus if gpu.uuid is not None} if every else set()
    return tuple(one for one in every if one.host == name or one.gpu_uuid in cards)


def _declared(inventory: "Inventory | None", name: str) -> tuple[GpuLayout, ...]:
    """The entries of the host's layout; none without an inventory. Raises InventoryError."""
    layout = None if inventory is None else inventory.layout(name)
    return () if layout is None else layout.gpus


def change_facts(session: "Session", host: str, change: Callable[[HostFacts], HostFacts]) -> None:
    """Change what is cached of a host by what was done there since; the rest stays as old as it is."""
    known = session.facts(host)
    if known is not None:
        session.save_facts(host, change(known.facts), known.read_at)


def open_to_its_own(capacity: HostCapacity) -> HostCapacity:
    """The host for VMs that have their disks there: maintenance, cordons and groups keep new VMs away, not these."""
    return replace(
        capacity,
        constraints=replace(capacity.constraints, maintenance=None),
        restrictions=without_cordon(capacity.restrictions),
        groups=frozenset(),
    )


def cached_capacities(
    session: "Session", inventory: "Inventory | None" = None, say: Callable[[str], None] | None = None
) -> list[HostCapacity]:
    """The hosts whose facts are in the store; with an inventory only its hosts, with what it says of them.

    A host with an error in the inventory is left out. The survey reports it; say: tells it where there is no survey.
    """
    promises = read_promises(session)
    names = None if inventory is None else set(inventory.select(None))
    found = []
    for name, known in session.all_facts().items():
        if names is None or name in names:
            try:
                found.append(capacity_of(name, known.facts, known.generation, promises, inventory))
            except InventoryError as error:
                if say is not None:
                    say(f"warning: {name} is left out: {error.message}")
    return found


def with_silence(
    capacities: Iterable[HostCapacity], observed: Mapping[str, "ObservedHost"], read: Collection[str] = ()
) -> list[HostCapacity]:
    """The hosts, with those that give no answer closed: the one rule for what counts as room.

    read: hosts that have just answered; of them libvirt counts alone.
    """
    return [
        one
        if (known := observed.get(one.name)) is None
        else replace(one, silence=known.libvirt_silence if one.name in read else known.silence)
        for one in capacities
    ]
