# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's resource manager: which vGPUs a card can still take, and where (reference 2.2, 3.3, 5.3)."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from vgpuctl_lab.simulated.machine.shape import MDEV_VF, VF_PROFILE, CardShape, Shape, VgpuType
from vgpuctl_lab.simulated.machine.state import GpuInstance, State, Vgpu

OK = 0
GPU_IS_LOST = 0x0F
INSUFFICIENT_RESOURCES = 0x1A
INVALID_OPERATION = 0x38
INVALID_STATE = 0x40
NOT_SUPPORTED = 0x56
OBJECT_NOT_FOUND = 0x57
BUSY_RETRY = 0x66
DRIVER = "nvidia"
TYPES_ALONE = "types-alone"
ALONE_BY_TYPE, ALONE_BY_SIZE, ALONE_IN_VM = 1, 2, 4
"""The fault's value is a sum of these."""
_MOST_VGPUS, _MOST_WITH_MIG, _MOST_PER_INSTANCE = 32, 48, 12
_MOST_GIB = 512


@dataclass(frozen=True)
class Pool:
    """The space that vGPUs share: a card without MIG, or one GPU instance. vgpus: with their types.

    alone: the rules of exclusiveness that its types have, ALONE_BY_TYPE and ALONE_BY_SIZE, by the fault `types-alone`.
    """

    vgpus: tuple[tuple[Vgpu, VgpuType], ...]
    mixes_sizes: bool
    alone: int = 0

    def status(self, wanted: VgpuType) -> int:
        """RM's answer to one more vGPU of a type."""
        others = [each for _, each in self.vgpus]
        if self.alone & ALONE_BY_TYPE and any(each.type_id != wanted.type_id for each in others):
            return NOT_SUPPORTED
        if self.alone & ALONE_BY_SIZE and any(each.framebuffer_mib != wanted.framebuffer_mib for each in others):
            return NOT_SUPPORTED
        # Equal size means equal framebuffer, whatever the series.
        if self.vgpus and not self.mixes_sizes and self.vgpus[0][1].framebuffer_mib != wanted.framebuffer_mib:
            return NOT_SUPPORTED
        if len(self.vgpus) >= (_MOST_VGPUS if wanted.gi_profile is None else _MOST_PER_INSTANCE):
            return INSUFFICIENT_RESOURCES
        # In mixed-size mode places count, and the type's maximum does not.
        if self.mixes_sizes:
            return INSUFFICIENT_RESOURCES if self.place(wanted) is None else OK
        most = wanted.max_instances if wanted.gi_profile is None else wanted.max_per_instance
        return OK if len(self.vgpus) < most else INSUFFICIENT_RESOURCES

    def is_free(self, placement: int, size: int) -> bool:
        """True if a range is free; after a deletion it is only when all of it is."""
        return all(
            placement + size <= vgpu.placement or vgpu.placement + each.placement_size <= placement
            for vgpu, each in self.vgpus
        )

    def creatable(self, wanted: VgpuType) -> list[int]:
        """The placement ids that a vGPU of a type can have now in mixed-size mode."""
        return [place for place in wanted.placements if self.is_free(place, wanted.placement_size)]

    def place(self, wanted: VgpuType) -> int | None:
        """The first place for a type: of its placement ids in mixed-size mode, else side by side."""
        if self.mixes_sizes:
            return next(iter(self.creatable(wanted)), None)
        size = wanted.placement_size
        return next((place for place in range(0, _MOST_GIB, size) if self.is_free(place, size)), None)


class Ruling:
    """The present space of one card. without: a vGPU to ignore, because it is about to move."""

    def __init__(self, state: State, card: CardShape, *, without: Vgpu | None = None) -> None:
        self._state = state
        self._card = card
        self._vgpus = [vgpu for vgpu in state.vgpus_of(card) if vgpu is not without]
        self._answers: dict[int, tuple[int, GpuInstance | None]] = {}
        self._on_free_vf: list[VgpuType] | None = None

    def status(self, function: str, wanted: VgpuType | None) -> tuple[int, GpuInstance | None]:
        """RM's answer to a request for one vGPU of this type on this function, and the GPU instance it goes to."""
        if wanted is None:
            return OBJECT_NOT_FOUND, None
        if self._state.fault(self._card, "fallen"):
            return GPU_IS_LOST, None
        # VFs outlive the PF's driver while sriov-manage has the PF on pci-pf-stub.
        if self._state.drivers.get(self._card.address) != DRIVER or self._card.address in self._state.unbind_locks:
            return INVALID_STATE, None
        if is_on_vfs(self._card) and function in self._used:
            return INVALID_OPERATION, None
        if wanted.type_id not in self._answers:
            self._answers[wanted.type_id] = self._anywhere(wanted)
        return self._answers[wanted.type_id]

    def available(self, function: str, wanted: VgpuType) -> int:
        """The value of `available_instances` on this function; 0 or 1 on a VF."""
        if self.status(function, wanted)[0] != OK:
            return 0
        return 1 if is_on_vfs(self._card) else wanted.max_instances - len(self._vgpus)

    def creatable(self, function: str) -> Sequence[VgpuType]:
        """The types of which this function can take a vGPU; every free VF of a card has the same ones."""
        if function in self._used:
            return ()
        if self._on_free_vf is None:
            self._on_free_vf = [each for each in self._card.types if self.available(function, each)]
        return self._on_free_vf

    def pool(self, instance: GpuInstance | None) -> Pool:
        """The pool of a GPU instance, or of the whole card."""
        number = None if instance is None else instance.id
        mixes_sizes = self._card.address in self._state.mixed_sizes if instance is None else instance.mixes_sizes
        own = [vgpu for vgpu in self._vgpus if vgpu.instance == number]
        known = ((vgpu, self._card.type_of(vgpu.type_id)) for vgpu in own)
        alone = self._state.fault(self._card, TYPES_ALONE)
        return Pool(tuple((vgpu, each) for vgpu, each in known if each is not None), mixes_sizes, alone)

    @cached_property
    def _used(self) -> set[str]:
        return {vgpu.function for vgpu in self._vgpus}

    def _anywhere(self, wanted: VgpuType) -> tuple[int, GpuInstance | None]:
        has_mig = self._state.mig_mode(self._card)[0]
        if wanted.gi_profile is None:
            return (INVALID_OPERATION if has_mig else self.pool(None).status(wanted)), None
        instances = self._state.instances_of(self._card)
        if not has_mig or not instances:
            return INVALID_OPERATION, None
        if len(self._vgpus) >= _MOST_WITH_MIG:
            return INSUFFICIENT_RESOURCES, None
        for instance in instances:
            if instance.profile_id == wanted.gi_profile and self.pool(instance).status(wanted) == OK:
                return OK, instance
        return INVALID_STATE, None


def add(
    state: State,
    card: CardShape,
    function: str,
    wanted: VgpuType,
    uuid: str | None = None,
    *,
    instance: GpuInstance | None = None,
) -> Vgpu:
    """Put a vGPU on a function that may have it, into a GPU instance or the card's own memory."""
    placement = Ruling(state, card).pool(instance).place(wanted) or 0
    vgpu = Vgpu(card.address, function, wanted.type_id, placement, uuid=uuid)
    vgpu.instance = None if instance is None else instance.id
    if uuid is not None:
        vgpu.group, state.next_group = state.next_group, state.next_group + 1
    state.vgpus.append(vgpu)
    return vgpu


def move_to_placement(state: State, card: CardShape, vgpu: Vgpu, placement: int) -> int:
    """RM's answer to another place for a vGPU; on OK it has it."""
    if placement == vgpu.placement:
        return OK
    wanted = card.type_of(vgpu.type_id)
    instance = next((one for one in state.instances_of(card) if one.id == vgpu.instance), None)
    pool = Ruling(state, card, without=vgpu).pool(instance)
    if wanted is None or not pool.mixes_sizes:
        return NOT_SUPPORTED
    if placement not in wanted.placements:
        return INVALID_STATE
    if not pool.is_free(placement, wanted.placement_size):
        return INSUFFICIENT_RESOURCES
    vgpu.placement = placement
    return OK


def move_to_instance(state: State, card: CardShape, vgpu: Vgpu, number: int) -> int:
    """RM's answer to another GPU instance for a vGPU; on OK it is there."""
    if number == vgpu.instance:
        return OK
    if not state.mig_mode(card)[0]:
        return INVALID_OPERATION
    instance = next((one for one in state.instances_of(card) if one.id == number), None)
    wanted = card.type_of(vgpu.type_id)
    if instance is None or wanted is None:
        return INVALID_STATE
    if instance.profile_id != wanted.gi_profile:
        return NOT_SUPPORTED
    pool = Ruling(state, card, without=vgpu).pool(instance)
    status = pool.status(wanted)
    if status == OK:
        vgpu.instance, vgpu.placement = number, pool.place(wanted) or 0
    return status


def removal_errno(shape: Shape, state: State, card: CardShape, vgpu: Vgpu) -> int:
    """Return the errno with which the driver keeps a vGPU, 0 when it lets go.

    EPERM while its VFIO device counts as used, which outlives the QEMU process; then EBUSY while its plugin lives; then
    EIO while RM refuses. Each takes a third of the delay.
    """
    if state.holder_of(vgpu) is not None:
        return errno.EPERM
    delay_s = max(shape.removal_delay_s, state.fault(card, "removal-delay") / 1000)
    if vgpu.closed_at is None or delay_s <= 0:
        return 0
    stage = int((state.now() - vgpu.closed_at) * 3 // delay_s)
    return (errno.EPERM, errno.EBUSY, errno.EIO)[max(stage, 0)] if stage < 3 else 0


def is_on_vfs(card: CardShape) -> bool:
    """True if the card's vGPUs sit on virtual functions, one on each."""
    return card.interface in (MDEV_VF, VF_PROFILE)
