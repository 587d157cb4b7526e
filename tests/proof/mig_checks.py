# SPDX-License-Identifier: Apache-2.0
"""MIG on a simulated card held against the published geometry: an oracle beside the planner's and the machine's rules.

The rule is the catalogue's own (data/mig_profiles.yaml): slot ranges do not overlap, each begins where its profile may,
compute slices add up to at most the card's, each profile stays within its count, and one vGPU sits in one instance.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from vgpuctl import catalog
from vgpuctl.model.lease import Lease
from vgpuctl_lab.simulated.machine.shape import Card
from vgpuctl_lab.simulated.machine.state import MachineFolder, State


def mig_faults(host: str, machine: MachineFolder, leases: Sequence[Lease]) -> Iterator[str]:
    """Everything on the host's MIG cards that the geometry forbids, or that no lease explains, a sentence each."""
    state = machine.state()
    for card in machine.shape.cards:
        if card.mig is not None:
            yield from _instances(f"{host} {card.address}", card, state)
            yield from _vgpus(f"{host} {card.address}", card, state)
    made = Counter(vgpu.uuid or vgpu.function for vgpu in state.vgpus)
    leased = Counter(lease.share.mdev_uuid or lease.share.function for lease in leases)
    if made != leased:
        yield f"{host} has {sorted(made - leased)} beside its leases, and lacks {sorted(leased - made)}"


def _instances(where: str, card: Card, state: State) -> Iterator[str]:
    board = catalog.board_by_pci(card.vendor, card.device, card.subsystem)
    table = None if board is None else catalog.mig_table(board)
    assert table is not None, f"{card.model} has no MIG profiles in the catalogue"
    profiles = {profile.id: profile for profile in table.profiles}
    taken: dict[int, int] = {}
    count: Counter[int] = Counter()
    compute_slices = 0
    for instance in (one for one in state.instances if one.card == card.address):
        profile = profiles[instance.profile_id]
        count[instance.profile_id] += 1
        compute_slices += profile.compute_slices
        if instance.start not in (profile.placement_starts or ()) or instance.size != profile.placement_size:
            yield f"{where}: {profile.name} lies at {instance.start}:{instance.size}"
        for slot in range(instance.start, instance.start + instance.size):
            if slot in taken:
                yield f"{where}: instances {taken[slot]} and {instance.id} share memory slot {slot}"
            taken[slot] = instance.id
    if compute_slices > (table.compute_slices or 0):
        yield f"{where}: {compute_slices} compute slices of {table.compute_slices}"
    for profile_id, number in count.items():
        if number > profiles[profile_id].max_count:
            yield f"{where}: {number} instances of {profiles[profile_id].name}"


def _vgpus(where: str, card: Card, state: State) -> Iterator[str]:
    board = catalog.board_by_pci(card.vendor, card.device, card.subsystem)
    instances = {one.id: one for one in state.instances if one.card == card.address}
    inside: defaultdict[int | None, list[str]] = defaultdict(list)
    for vgpu in (one for one in state.vgpus if one.card == card.address):
        known = None if board is None else catalog.type_by_id(board, str(vgpu.type_id))
        assert known is not None, f"{where} carries type {vgpu.type_id}"
        inside[vgpu.instance].append(known.name)
        instance = None if vgpu.instance is None else instances.get(vgpu.instance)
        if known.is_mig_backed and (instance is None or instance.profile_id != known.gi_profile_id):
            yield f"{where}: a {known.name} sits in {instance}"
        if known.is_mig_backed and len(inside[vgpu.instance]) > (known.max_per_gi or 1):
            yield f"{where}: {inside[vgpu.instance]} share instance {vgpu.instance}"
