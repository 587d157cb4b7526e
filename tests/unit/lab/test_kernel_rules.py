# SPDX-License-Identifier: Apache-2.0
"""The kernel module's rules, built as a library: they agree with the catalogue and with the rules in Python."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.unit.lab import rules_library
from tests.unit.lab.rules_library import Rules, Space, layout_of
from vgpuctl import catalog
from vgpuctl.model.layout import WantedInstance
from vgpuctl.model.mig_space import Space as MigSpace
from vgpuctl.planner.mig_geometry import check, place, table_of_board
from vgpuctl.planner.mig_geometry.fit import occupied
from vgpuctl_lab import boards, placements

_A100, _A30, _RTX = "nvidia-a100-pcie-40gb", "nvidia-a30", "nvidia-rtx-pro-6000-blackwell-server"


@pytest.fixture(name="rules")
def _rules() -> Rules:
    return rules_library.rules()


def test_placement_ids_are_those_of_the_published_tables(rules: Rules) -> None:
    """[reference 3.3] Every type of every board for whose size a table is published."""
    compared = 0
    for board in catalog.boards().values():
        table = catalog.mixed_size_table(board)
        for one in catalog.types_of(board):
            if table is None or one.placement_size is None or one.placement_size not in table.sizes:
                continue
            found = rules.placements(layout_of(board), board.memory_mib // 1024, one.placement_size, one.max_instances)
            assert found == table.sizes[one.placement_size], (board.key, one.name)
            assert len(found) == one.max_mixed, (board.key, one.name)
            compared += 1
    assert compared > 500


def test_simulated_hosts_have_the_kernel_modules_placements(rules: Rules) -> None:
    cases = {
        (layout_of(board), placements.layout_of(board), board.memory_mib // 1024, one.placement_size, most)
        for board in catalog.boards().values()
        for one in catalog.types_of(board)
        for most in (one.max_instances, one.max_per_gi or 1)
        if one.placement_size is not None
    }
    assert len(cases) > 100
    for number, layout, region, size, most in cases:
        expected = rules.placements(number, region, size, most)
        assert placements.placements(layout, region, size, most) == expected, (layout, region, size, most)


def test_placements_of_blackwell_are_as_many_as_instances_and_never_overlap(rules: Rules) -> None:
    """[reference 3.3]"""
    for one in catalog.types_of(catalog.board(_RTX)):
        if one.placement_size is None:
            continue
        found = rules.placements(2, 96, one.placement_size, one.max_instances)
        assert len(found) == one.max_instances
        assert all(later - first >= one.placement_size for first, later in itertools.pairwise(found)), one


def _spaces(rules: Rules, key: str) -> Iterator[tuple[Space, tuple[tuple[str, int], ...]]]:
    """Every state of a GPU's instances that can be reached by creating at any start, each once."""
    seen = set()
    waiting: list[tuple[tuple[str, int], ...]] = [()]
    while waiting:
        placed = waiting.pop()
        if placed in seen:
            continue
        seen.add(placed)
        space = rules.space(boards.mig_profiles(catalog.board(key)), placed)
        yield space, placed
        for name, start in space.possible():
            waiting.append(tuple(sorted((*placed, (name, start)))))


@pytest.mark.parametrize(("key", "step"), [(_A100, 7), (_A30, 1)])
def test_what_fits_beside_what_is_there_agrees_with_the_planner(rules: Rules, key: str, step: int) -> None:
    """[reference 5.2] Free starts and remaining counts, in every state of an A30 and every seventh of an A100."""
    table = table_of_board(catalog.board(key))
    assert table is not None
    every = list(_spaces(rules, key))
    assert len(every) > 70
    for space, placed in every[::step]:
        possible = space.possible()
        fixed = [WantedInstance(name, start) for name, start in placed]
        taken = occupied((start, table.by_name[name].size) for name, start in placed)
        for profile in table.profiles:
            free = {start for name, start in possible if name == profile.name}
            expected = {
                start for start in profile.starts if check(table, [*fixed, WantedInstance(profile.name, start)]) is None
            }
            assert free == expected, (placed, profile.name)
            most = 0
            while (
                check(table, [*fixed, *[WantedInstance(profile.name)] * (most + 1)]) is None
                and place(table, [WantedInstance(profile.name)] * (most + 1), taken) is not None
            ):
                most += 1
            assert space.remaining(profile.name) == most, (placed, profile.name)


@pytest.mark.parametrize("key", [board.key for board in catalog.boards().values() if boards.mig_profiles(board)])
def test_filling_any_board_at_random_never_breaks_the_rule(rules: Rules, key: str) -> None:
    """[reference 5.2] The driver chooses the starts; whatever came to lie there is one the planner calls possible."""
    table, profiles = table_of_board(catalog.board(key)), boards.mig_profiles(catalog.board(key))
    assert table is not None
    chance = random.Random(key)
    for _ in range(20):
        placed: tuple[tuple[str, int], ...] = ()
        while True:
            space = rules.space(profiles, placed)
            here = MigSpace(
                table.compute_slices, table.profiles, tuple((table.by_name[name], start) for name, start in placed)
            )
            for part in table.profiles:
                assert here.remaining(part) == space.remaining(part.name), (placed, part)
                chosen = here.best_start(part)
                assert (-1 if chosen is None else chosen) == space.best_start(part.name), (placed, part)
            names = sorted({name for name, _ in space.possible()})
            assert all((space.remaining(one.name) > 0) == (one.name in names) for one in table.profiles)
            if not names:
                break
            name = chance.choice(names)
            placed = (*placed, (name, space.best_start(name)))
            assert check(table, [WantedInstance(*one) for one in placed]) is None, placed
            ids = Counter(_instance_id(profiles, *one) for one in placed)
            assert max(ids.values()) == 1, f"two instances have one id: {placed}"


def _instance_id(profiles: catalog.MigTable | None, name: str, start: int) -> int:
    assert profiles is not None
    profile = next(one for one in profiles.profiles if one.name == name)
    return (profile.gi_id_base or 0) + start // (profile.placement_size or 1)


@pytest.mark.parametrize(
    ("profile", "starts"), [("1g.5gb", [6, 4, 5, 0, 1, 2, 3]), ("3g.20gb", [4, 0]), ("7g.40gb", [0])]
)
def test_the_driver_chooses_the_starts_that_real_boards_were_seen_to_choose(
    rules: Rules, profile: str, starts: list[int]
) -> None:
    """[reference 5.2]"""
    placed: tuple[tuple[str, int], ...] = ()
    while (start := rules.space(boards.mig_profiles(catalog.board(_A100)), placed).best_start(profile)) >= 0:
        placed = (*placed, (profile, start))
    assert [start for _, start in placed] == starts


def test_without_mig_one_framebuffer_size_fills_the_gpu_up_to_its_maximum(rules: Rules) -> None:
    """[reference 2.2] RM's codes: 0x56 another size, 0x1a the maximum."""
    board = catalog.board("nvidia-a40")
    types = catalog.types_of(board)
    for one in types:
        gpu = rules.gpu(board)
        for _ in range(one.max_instances):
            assert gpu.create(one) == 0
        assert gpu.create(one) == 0x1A
        others = [other for other in types if other.fb_mib != one.fb_mib]
        assert {gpu.status(other) for other in others} == {0x56}
        starts = [placement for placement, _ in gpu.placed()]
        assert starts == [index * (one.placement_size or 1) for index in range(one.max_instances)]


def test_mixed_sizes_are_taken_at_their_placements_until_no_place_is_left(rules: Rules) -> None:
    """[reference 3.3] NVIDIA's example: beside an L4-12Q at 0 an L4-6Q can be at 12 and 18."""
    board = catalog.board("nvidia-l4")
    twelve, six = _type(board, "L4-12Q"), _type(board, "L4-6Q")
    gpu = rules.gpu(board, is_heterogeneous=True)
    assert [gpu.create(one) for one in (twelve, six, six)] == [0, 0, 0]
    assert gpu.placed() == [(0, 12), (12, 6), (18, 6)]
    assert gpu.create(six) == 0x1A
    gpu.remove(0)
    assert (gpu.create(six), gpu.placed()[-1]) == (0, (0, 6))
    assert gpu.status(twelve) == 0x1A, "all of its range must be free"


def test_random_mixes_never_overlap_and_refusals_mean_that_no_place_is_free(rules: Rules) -> None:
    """[reference 3.3]"""
    chance = random.Random(48)
    for key in ("nvidia-a40", "nvidia-l40s", "nvidia-h100-pcie-80gb", _RTX):
        board = catalog.board(key)
        types = [one for one in catalog.types_of(board) if not one.is_mig_backed]
        for _ in range(6):
            gpu = rules.gpu(board, is_heterogeneous=True)
            for _ in range(60):
                one = chance.choice(types)
                before = gpu.placed()
                if gpu.create(one):
                    size = one.placement_size or 0
                    free = [
                        place
                        for place in rules.placements(gpu.layout, gpu.region, size, one.max_instances)
                        if all(place >= other + length or other >= place + size for other, length in before)
                    ]
                    assert not free or len(before) == 32
                elif len(before) > 2 and chance.random() < 0.2:
                    gpu.remove(chance.randrange(len(before)))
                spans = sorted(gpu.placed())
                assert all(a + length <= b for (a, length), (b, _) in itertools.pairwise(spans)), spans


def test_a_mig_backed_type_needs_an_instance_of_its_profile_with_room(rules: Rules) -> None:
    """[reference 2.2, 5.3] 0x38 without MIG, without instances and for time-sliced types; 0x40 when none is free."""
    board = catalog.board(_A100)
    sliced, one, three = (_type(board, name) for name in ("A100-4C", "A100-1-5C", "A100-3-20C"))
    assert rules.gpu(board).status(one) == 0x38
    gpu = rules.gpu(board, instances=())
    assert (gpu.status(sliced), gpu.status(one)) == (0x38, 0x38)
    gpu = rules.gpu(board, instances=((1, "3g.20gb"), (13, "1g.5gb"), (9, "1g.5gb")))
    assert gpu.status(sliced) == 0x38
    assert (gpu.create(three), gpu.create(three)) == (0, 0x40)
    assert [gpu.create(one) for _ in range(3)] == [0, 0, 0x40]
    assert gpu.instances_used() == [1, 9, 13], "the lowest-numbered free instance comes first"


def test_on_blackwell_an_instance_takes_several_vgpus_of_one_size_or_of_mixed_sizes(rules: Rules) -> None:
    """[reference 5.3]"""
    board = catalog.board(_RTX)
    six, eight, same = (_type(board, name) for name in ("DC-1-6Q", "DC-1-8Q", "DC-1-6A"))
    instances = ((3, "1g.24gb+gfx"), (4, "1g.24gb"))
    gpu = rules.gpu(board, instances=instances)
    assert [gpu.create(one) for one in (six, same, eight, six, six, six)] == [0, 0, 0x40, 0, 0, 0x40]
    assert gpu.instances_used() == [3, 3, 3, 3]
    mixed = rules.gpu(board, instances=instances, is_heterogeneous=True)
    assert [mixed.create(one) for one in (eight, six, six, six)] == [0, 0, 0, 0x40]
    assert mixed.placed(3) == [(0, 8), (12, 6), (18, 6)]


def test_a_gpu_never_has_more_vgpus_than_the_driver_counts(rules: Rules) -> None:
    """[reference 2.2] 32 without MIG, 12 in one GPU instance, 48 with MIG."""
    board = catalog.board(_RTX)
    small = _type(board, "DC-1-2Q")
    gpu = rules.gpu(board, instances=tuple((number, "1g.24gb+gfx") for number in (3, 4, 5, 6)))
    assert [gpu.create(small) for _ in range(49)] == [0] * 48 + [0x1A]
    assert Counter(gpu.instances_used()) == {3: 12, 4: 12, 5: 12, 6: 12}


def _type(board: catalog.Board, name: str) -> catalog.CatalogType:
    found = catalog.type_by_name(board, name)
    assert found is not None
    return found
