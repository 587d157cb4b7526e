# SPDX-License-Identifier: Apache-2.0
"""MIG on a simulated card held against the kernel module's rule, and every vGPU against the leases."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.unit.lab.rules_library import rules
from vgpuctl import catalog
from vgpuctl.model.lease import Lease
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import MachineFolder, State


def mig_faults(host: str, machine: MachineFolder, leases: Sequence[Lease]) -> Iterator[str]:
    """Everything on the host's MIG cards that the geometry forbids, or that no lease explains, a sentence each."""
    state = machine.state()
    for card in machine.shape.cards:
        if card.mig is not None:
            yield from _instances(f"{host} {card.address}", card, state)
            yield from _vgpus(f"{host} {card.address}", card, state)
    made = Counter(vgpu.uuid or vgpu.function for vgpu in state.vgpus)
    leased = Counter(lease.share.vfio_device for lease in leases)
    if made != leased:
        yield f"{host} has {sorted(made - leased)} beside its leases, and lacks {sorted(leased - made)}"


def _instances(where: str, card: CardShape, state: State) -> Iterator[str]:
    board = catalog.board_by_pci(card.vendor, card.device, card.subsystem)
    table = None if board is None else catalog.mig_table(board)
    assert table is not None, f"{card.model} has no MIG profiles in the catalogue"
    profiles = {profile.id: profile for profile in table.profiles}
    placed: list[tuple[str, int]] = []
    for instance in (one for one in state.instances if one.card == card.address):
        profile = profiles[instance.profile_id]
        fits = rules().space(table, placed).fits_at(profile.name, instance.start)
        if not fits or instance.size != profile.placement_size:
            yield f"{where}: {profile.name} at {instance.start}:{instance.size} does not fit beside {placed}"
        placed.append((profile.name, instance.start))


def _vgpus(where: str, card: CardShape, state: State) -> Iterator[str]:
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
