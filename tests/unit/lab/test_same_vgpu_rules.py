# SPDX-License-Identifier: Apache-2.0
"""The vGPU rules of the simulated hosts and of the kernel module, on the same random walks: one answer at each step."""

from functools import cache

from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.lab import rules_library
from vgpuctl import catalog
from vgpuctl_lab import boards
from vgpuctl_lab.simulated.machine import modes, rules
from vgpuctl_lab.simulated.machine.shape import Shape
from vgpuctl_lab.simulated.machine.state import GpuInstance, booted
from vgpuctl_lab.simulated.mix import MixPart, SimulatedCard, shape_of

# A number that chooses a type (or a vGPU), and how many of the type to create, 0 to delete the vGPU.
WALKS = st.lists(st.tuples(st.integers(0, 200), st.sampled_from([0, 0, 1, 2, 5, 48])), min_size=1, max_size=20)


@cache
def _shape(board: catalog.Board) -> Shape:
    card = SimulatedCard(board, boards.interfaces(board)[0])
    return shape_of("host", MixPart((card,), 1, board.key), {}, with_vfs=False)


BOARDS = [board for board in catalog.boards().values() if boards.vgpu_types(board)]
WITH_MIG = [board for board in BOARDS if _shape(board).cards[0].mig is not None]


class BothGpus:
    """One GPU under both rules; each answer is compared."""

    def __init__(self, board: catalog.Board, profiles: list[int] | None, *, mixes_sizes: bool) -> None:
        """profiles: numbers of GPU-instance profiles, None without MIG. Instances that do not fit are left out.

        mixes_sizes: of the GPU or of each instance, where it has the mode.
        """
        self._types = boards.vgpu_types(board)
        (self._card,) = _shape(board).cards
        self._state = booted(_shape(board))
        self._created = 0
        pools: list[GpuInstance | None] = [None]
        if profiles is not None:
            self._create_instances(profiles)
            pools = [*self._state.instances_of(self._card)]
        for instance in pools:
            if modes.has_mixed_sizes(self._state, self._card, instance):
                modes.set_mixed_sizes(self._state, self._card, instance, enabled=mixes_sizes)
        self._gpu = rules_library.rules().gpu(
            board,
            is_heterogeneous=self._card.address in self._state.mixed_sizes,
            instances=None if profiles is None else [(one.id, self._name(one)) for one in pools if one is not None],
        )
        for pool, instance in zip(self._gpu.gpu.instances, pools, strict=False):
            pool.pool.is_heterogeneous = instance is not None and instance.mixes_sizes

    def create(self, number: int, count: int) -> None:
        """Create vGPUs of one type until one is refused."""
        entry, type_id = self._types[number % len(self._types)]
        kind = self._card.type_of(type_id)
        assert kind is not None
        for _ in range(count):
            status, instance = rules.Ruling(self._state, self._card).status(self._new_function(), kind)
            assert (self._gpu.create(entry), entry.name) == (status, entry.name)
            if status != rules.OK:
                break
            rules.add(self._state, self._card, self._new_function(), kind, instance=instance)
            self._created += 1

    def delete(self, number: int) -> None:
        """Delete one vGPU, if there is any."""
        if self._state.vgpus:
            vgpu = self._state.vgpus[number % len(self._state.vgpus)]
            beside = [one for one in self._state.vgpus if one.instance == vgpu.instance]
            self._gpu.remove(beside.index(vgpu), vgpu.instance)
            self._state.vgpus.remove(vgpu)

    def compare(self) -> None:
        """Compare where every vGPU lies, and the answers to one more of each type."""
        for instance in (None, *(one.id for one in self._state.instances_of(self._card))):
            placed = [one.placement for one in self._state.vgpus if one.instance == instance]
            assert [placement for placement, _ in self._gpu.placed(instance)] == placed
        ruling = rules.Ruling(self._state, self._card)
        answers = {kind.full_name: ruling.status(self._new_function(), kind) for kind in self._card.types}
        assert {boards.full_name(entry): self._gpu.status(entry) for entry, _ in self._types} == {
            name: status for name, (status, _) in answers.items()
        }

    def _create_instances(self, profiles: list[int]) -> None:
        assert self._card.mig is not None
        self._state.mig_modes[self._card.address] = (True, True)
        for number in profiles:
            profile = self._card.mig.profiles[number % len(self._card.mig.profiles)]
            try:
                modes.create_instance(self._state, self._card, profile.profile_id, None)
            except modes.Refused:
                continue

    def _name(self, instance: GpuInstance) -> str:
        assert self._card.mig is not None
        return next(one.name for one in self._card.mig.profiles if one.profile_id == instance.profile_id)

    def _new_function(self) -> str:
        return f"function {self._created}"


def _walk(gpus: BothGpus, steps: list[tuple[int, int]]) -> None:
    gpus.compare()
    for number, count in steps:
        if count:
            gpus.create(number, count)
        else:
            gpus.delete(number)
        gpus.compare()


@given(board=st.sampled_from(BOARDS), mixes_sizes=st.booleans(), steps=WALKS)
@example(board=catalog.board("nvidia-l20"), mixes_sizes=False, steps=[(0, 48)])  # 32 of a size: which refusal is first
def test_a_gpu_without_mig_answers_alike_under_both_rules(
    board: catalog.Board, mixes_sizes: bool, steps: list[tuple[int, int]]
) -> None:
    _walk(BothGpus(board, None, mixes_sizes=mixes_sizes), steps)


@given(
    board=st.sampled_from(WITH_MIG),
    mixes_sizes=st.booleans(),
    profiles=st.lists(st.integers(0, 30), max_size=8),
    steps=WALKS,
)
def test_a_gpu_with_mig_answers_alike_under_both_rules(
    board: catalog.Board, mixes_sizes: bool, profiles: list[int], steps: list[tuple[int, int]]
) -> None:
    _walk(BothGpus(board, profiles, mixes_sizes=mixes_sizes), steps)
