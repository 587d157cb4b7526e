# SPDX-License-Identifier: Apache-2.0
"""A card's modes and MIG instances, as NVML changes them (reference 3.3, 3.4, 5.1, 5.2). Refusals are NVML's codes."""

from dataclasses import replace

from vgpuctl.model.mig_space import Part, Space
from vgpuctl_lab.simulated.machine import readings, usage
from vgpuctl_lab.simulated.machine.shape import CardShape, Mig, MigProfile
from vgpuctl_lab.simulated.machine.state import ComputeInstance, GpuInstance, MachineFolder, Scheduler, State
from vgpuctl_lab.simulated.machine.tuning import Tuning

INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 2, 3, 4, 6
IN_USE, INSUFFICIENT_RESOURCES = 19, 23
BEST_EFFORT, EQUAL_SHARE, FIXED_SHARE = 1, 2, 3
_POLICIES = {BEST_EFFORT: "BEST_EFFORT", EQUAL_SHARE: "EQUAL_SHARE", FIXED_SHARE: "FIXED_SHARE"}
_LEAST_SLICE_NS, _MOST_SLICE_NS = 1_000_000, 30_000_000


class Refused(Exception):
    """NVML refuses, with a return code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML {code}")
        self.code = code


def set_mig_mode(state: State, card: CardShape, *, enabled: bool) -> int:
    """Set the MIG mode. Returns 0, or why it stays pending although the call succeeds."""
    if card.mig is None:
        raise Refused(NOT_SUPPORTED)
    current, pending = state.mig_mode(card)
    if (current, pending) == (enabled, enabled):
        return 0
    if state.vf_counts.get(card.address) or state.vgpus_of(card):
        raise Refused(IN_USE)
    is_used = bool(state.instances_of(card)) or usage.is_used(state, card)
    if is_used and not card.mig.needs_reset:
        raise Refused(IN_USE)
    state.mig_modes[card.address] = (current, enabled)
    if enabled == current:
        return 0
    if is_used:
        return IN_USE
    _apply_mig_mode(state, card)
    return 0


def reset(state: State, card: CardShape) -> None:
    """Reset a card that nobody uses: a pending mode counts; instances, mixed sizes and counted errors go."""
    if state.vf_counts.get(card.address) or state.vgpus_of(card) or usage.is_used(state, card):
        raise Refused(IN_USE)
    forget(state, card)
    readings.forget_errors(state, card)
    _apply_mig_mode(state, card)
    if card.address in state.ecc:
        state.ecc[card.address] = (ecc_mode(state, card)[1],) * 2


def forget(state: State, card: CardShape) -> None:
    """State lost by a reset, and with the driver when VFs change (reference 3.1)."""
    state.instances = [one for one in state.instances if one.card != card.address]
    state.mixed_sizes = [address for address in state.mixed_sizes if address != card.address]
    state.tunings.pop(card.address, None)


def set_mixed_sizes(state: State, card: CardShape, instance: GpuInstance | None, *, enabled: bool) -> None:
    """Switch mixed sizes of a card or one of its GPU instances, while it has no vGPU."""
    if not has_mixed_sizes(state, card, instance):
        raise Refused(NOT_SUPPORTED)
    # Fixed share has no use for sizes that differ.
    if enabled and scheduler(state, card).policy == FIXED_SHARE:
        raise Refused(NOT_SUPPORTED)
    if instance is not None:
        if instance.mixes_sizes != enabled and is_instance_used(state, card, instance):
            raise Refused(IN_USE)
        instance.mixes_sizes = enabled
        return
    if (card.address in state.mixed_sizes) == enabled:
        return
    if state.vgpus_of(card):
        raise Refused(IN_USE)
    state.mixed_sizes = [address for address in state.mixed_sizes if address != card.address]
    if enabled:
        state.mixed_sizes.append(card.address)


def has_mixed_sizes(state: State, card: CardShape, instance: GpuInstance | None) -> bool:
    """True if a card, or one of its GPU instances, has mixed-size mode now."""
    if not card.mixes_sizes or state.mig_mode(card)[0] != (instance is not None):
        return False
    # Only where an instance takes several vGPUs.
    return instance is None or any(
        each.gi_profile == instance.profile_id and each.max_per_instance > 1 for each in card.types
    )


def ecc_mode(state: State, card: CardShape) -> tuple[bool, bool]:
    """True if ECC of a card is on and whether it will be; it is on from the factory."""
    current, pending = state.ecc.get(card.address, (True, True))
    return current, pending


def tuning(state: State, card: CardShape) -> Tuning:
    """The settings of the whole card that its driver was given."""
    return state.tunings.get(card.address) or Tuning()


def scheduler(state: State, card: CardShape) -> Scheduler:
    """The vGPU scheduler of a card."""
    return state.schedulers.get(card.address) or Scheduler()


def set_scheduler(machine: MachineFolder, state: State, card: CardShape, wanted: Scheduler) -> None:
    """Set the scheduler, while no VM runs on the card."""
    if not card.types:
        raise Refused(NOT_SUPPORTED)
    if (
        wanted.policy not in _POLICIES
        or wanted.arr not in (0, 1, 2)
        or not _LEAST_SLICE_NS <= wanted.slice_ns <= _MOST_SLICE_NS
    ):
        raise Refused(INVALID_ARGUMENT)
    mixes = card.address in state.mixed_sizes or any(one.mixes_sizes for one in state.instances_of(card))
    if wanted.policy == FIXED_SHARE and mixes:
        raise Refused(NOT_SUPPORTED)
    if state.is_used(card):
        raise Refused(IN_USE)
    state.schedulers[card.address] = replace(wanted)
    word = "DISABLED" if wanted.policy == BEST_EFFORT else "ENABLED"
    machine.log(f"NVRM: GPU at {card.address} has software scheduler {word} with policy {_POLICIES[wanted.policy]}.")


def create_instance(state: State, card: CardShape, profile_id: int, start: int | None) -> GpuInstance:
    """Create a GPU instance, at a start or where the driver likes."""
    mig = _mig_that_is_on(state, card)
    profile = mig.profile(profile_id)
    if profile is None:
        raise Refused(INVALID_ARGUMENT)
    chosen = _choose(gpu_space(state, card, mig), part_of(profile), start, is_compute=False)
    number = profile.id_base + chosen // profile.size
    taken = {one.id for one in state.instances_of(card)}
    while number in taken:
        number += 1
    instance = GpuInstance(card.address, number, profile_id, chosen, profile.size)
    state.instances.append(instance)
    return instance


def destroy_instance(state: State, card: CardShape, instance: GpuInstance) -> None:
    """Destroy a GPU instance without compute instances and vGPUs."""
    _mig_that_is_on(state, card)
    if instance.computes or is_instance_used(state, card, instance):
        raise Refused(IN_USE)
    state.instances.remove(instance)


def create_compute(
    state: State, card: CardShape, instance: GpuInstance, profile_id: int, start: int | None
) -> ComputeInstance:
    """Create a compute instance; those of a GPU instance with a vGPU are made in the guest."""
    mig = _mig_that_is_on(state, card)
    if any(vgpu.instance == instance.id for vgpu in state.vgpus_of(card)):
        raise Refused(IN_USE)
    part = compute_parts(mig, instance).get(profile_id)
    if part is None:
        raise Refused(INVALID_ARGUMENT)
    chosen = _choose(compute_space(mig, instance), part, start, is_compute=True)
    number = next(number for number in range(64) if all(one.id != number for one in instance.computes))
    compute = ComputeInstance(number, profile_id, chosen, part.size)
    instance.computes.append(compute)
    return compute


def destroy_compute(state: State, card: CardShape, instance: GpuInstance, compute: ComputeInstance) -> None:
    """Destroy a compute instance that nothing works in."""
    _mig_that_is_on(state, card)
    if is_instance_used(state, card, instance):
        raise Refused(IN_USE)
    instance.computes.remove(compute)


def is_instance_used(state: State, card: CardShape, instance: GpuInstance) -> bool:
    """True if a vGPU or a process is in it; a compute instance alone keeps it, but does not use it."""
    return bool(instance.pids) or any(vgpu.instance == instance.id for vgpu in state.vgpus_of(card))


def gpu_space(state: State, card: CardShape, mig: Mig) -> Space:
    """The memory slots of a card and what lies in them."""
    parts = {profile.profile_id: part_of(profile) for profile in mig.profiles}
    placed = tuple((parts[one.profile_id], one.start) for one in state.instances_of(card))
    return Space(mig.slices, tuple(parts.values()), placed)


def compute_parts(mig: Mig, instance: GpuInstance) -> dict[int, Part]:
    """The compute-instance profiles of a GPU instance as the rule sees them, by NVML's constant."""
    profile = mig.profile(instance.profile_id)
    return {
        one.profile_id: Part(f"{one.slices}c", one.slices, one.slices, one.starts, one.max_count)
        for one in (profile.computes if profile else ())
    }


def compute_space(mig: Mig, instance: GpuInstance) -> Space:
    """The compute slices of a GPU instance and what lies in them."""
    profile, parts = mig.profile(instance.profile_id), compute_parts(mig, instance)
    placed = tuple((parts[one.profile_id], one.start) for one in instance.computes)
    return Space(profile.slices if profile else 0, tuple(parts.values()), placed)


def part_of(profile: MigProfile) -> Part:
    """A GPU-instance profile as the rule sees it."""
    return Part(profile.name, profile.slices, profile.size, profile.starts, profile.max_count)


def _choose(space: Space, part: Part, wanted: int | None, *, is_compute: bool) -> int:
    if wanted is None:
        chosen = space.first_start(part) if is_compute else space.best_start(part)
        if chosen is None:
            raise Refused(INSUFFICIENT_RESOURCES)
        return chosen
    if wanted not in part.starts:
        raise Refused(INVALID_ARGUMENT)
    if not space.fits_at(part, wanted):
        raise Refused(INSUFFICIENT_RESOURCES)
    return wanted


def _mig_that_is_on(state: State, card: CardShape) -> Mig:
    if card.mig is None or not state.mig_mode(card)[0]:
        raise Refused(NOT_SUPPORTED)
    return card.mig


def _apply_mig_mode(state: State, card: CardShape) -> None:
    pending = state.mig_mode(card)[1]
    if card.mig is not None and state.mig_mode(card)[0] != pending:
        state.mig_modes[card.address] = (pending, pending)
        forget(state, card)
