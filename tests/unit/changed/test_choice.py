# SPDX-License-Identifier: Apache-2.0
"""The choice of near tests that fit into the time."""

from tests.changed.choice import LINTERS, START_S, WORKERS, Ranked, choose
from tests.changed.seconds import Seconds, seconds_of

BUDGET_S = 300.0
ROOM_S = (BUDGET_S - START_S) * WORKERS


def ranked(*seconds: float, on_emulated_host: float = 0) -> list[Ranked]:
    return [
        Ranked(f"tests/e2e/vm/test_{number}.py", number + 1, Seconds(one, on_emulated_host))
        for number, one in enumerate(seconds)
    ]


def test_the_nearest_run_until_the_time_is_over() -> None:
    choice = choose(ranked(*[ROOM_S / 4] * 6), frozenset(), BUDGET_S)
    assert [one.distance for one in choice.chosen] == [1, 2, 3, 4]
    assert [one.distance for one in choice.left_out] == [5, 6]
    assert choice.seconds == BUDGET_S


def test_a_short_test_behind_a_long_one_still_runs() -> None:
    choice = choose(ranked(1, BUDGET_S, 1), frozenset(), BUDGET_S)
    assert [one.distance for one in choice.chosen] == [1, 3]


def test_linters_and_gates_come_before_the_nearest() -> None:
    gates = [Ranked(LINTERS, 9, Seconds(60)), Ranked("tests/unit/test_gates.py", 9, Seconds(1))]
    choice = choose([*ranked(ROOM_S), *gates], frozenset(), BUDGET_S)
    assert list(choice.chosen) == gates


def test_an_emulated_host_boots_for_its_own_changed_tests_alone() -> None:
    files = ranked(2, 2, on_emulated_host=60)
    without = choose(files, frozenset(["vgpuctl/model/vm.py"]), BUDGET_S)
    assert not without.on_emulated_host
    assert list(without.need_host) == files
    assert without.seconds < START_S + 2
    with_host = choose(files, frozenset([files[0].file]), BUDGET_S)
    assert with_host.on_emulated_host
    assert with_host.need_host == []
    assert with_host.seconds > without.seconds + 2 * 60 / WORKERS


def test_a_file_with_nothing_but_an_emulated_host_does_not_run_without_it() -> None:
    assert choose(ranked(0, on_emulated_host=60), frozenset(), BUDGET_S).chosen == []


def test_a_file_that_takes_no_time_runs() -> None:
    files = ranked(0)
    assert choose(files, frozenset(), BUDGET_S).chosen == files


def test_what_changed_is_first_and_a_dear_test_waits() -> None:
    itself = Ranked("b", 0, Seconds(80))
    cheap, dear, alike = Ranked("c", 2, Seconds(1)), Ranked("a", 2, Seconds(75)), Ranked("d", 2, Seconds(1), 0.5)
    own, crowded = Ranked("e", 3, Seconds(1), is_own=True), Ranked("0", 1, Seconds(1), crowd=15)
    assert sorted([dear, cheap, itself, alike, own, crowded], key=lambda one: one.order) == [
        *(itself, own, alike, cheap, dear, crowded)
    ]


def test_a_new_test_takes_as_long_as_others_of_its_room() -> None:
    known = {"tests/unit/a/test_1.py": Seconds(1), "tests/unit/b/test_2.py": Seconds(3), "tests/gone.py": Seconds(99)}
    counts = {"tests/unit/a/test_1.py": 2, "tests/unit/b/test_2.py": 6, "tests/unit/c/test_new.py": 4}
    assert seconds_of(counts, known)["tests/unit/c/test_new.py"] == Seconds(2)
    assert seconds_of(counts, known)["tests/unit/a/test_1.py"] == Seconds(1)
    assert seconds_of({"tests/e2e/vm/test_other.py": 4}, known)["tests/e2e/vm/test_other.py"].others > 0
