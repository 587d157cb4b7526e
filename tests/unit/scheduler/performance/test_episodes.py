# SPDX-License-Identifier: Apache-2.0
"""Measurements from what vGPUs used, minute by minute."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.scheduler.performance.episodes import Track, cut_into_episodes, measure
from vgpuctl.scheduler.performance.measurement import Measurement

BEGIN = 1_800_000_000 // 60 * 60


def _track(vm: str, workload: str | None, use: dict[range, float], place: tuple[str, str] = ("gpu1", "a")) -> Track:
    minutes = {BEGIN + 60 * one: value for span, value in use.items() for one in span}
    return Track(vm, place, "best-effort", workload, "A40-8Q", minutes)


def _measured(tracks: Sequence[Track], unknown: str = "unlabelled") -> list[Measurement]:
    return measure(cut_into_episodes(tracks, unknown=unknown))


def test_a_vm_beside_another_is_held_against_itself_alone() -> None:
    found = _measured(
        [
            _track("t.one", "training", {range(30): 0.9, range(30, 60): 0.6}),
            _track("t.two", "vdi", {range(30, 60): 0.3}),
        ],
        unknown="unlabelled",
    )
    assert [(one.vm, one.neighbours) for one in found] == [("t.one", ()), ("t.one", ("vdi",))]
    assert [one.throughput for one in found] == pytest.approx([1.0, 0.6 / 0.9])


def test_a_vm_that_was_never_alone_is_held_against_three_of_its_class() -> None:
    alone = [
        _track(f"t.{number}", "vdi", {range(20): 0.4 + 0.1 * number}, ("gpu1", str(number))) for number in range(3)
    ]
    crowded = [
        _track("t.new", "vdi", {range(20): 0.25}, ("gpu2", "a")),
        _track("t.gone", None, {range(20): 0.5}, ("gpu2", "a")),
    ]
    (found,) = [one for one in _measured([*alone, *crowded], unknown="unlabelled") if one.neighbours]
    assert (found.vm, found.neighbours) == ("t.new", ("unlabelled",))
    assert found.throughput == pytest.approx(0.5)
    assert not [one for one in _measured([*alone[:2], *crowded], unknown="unlabelled") if one.neighbours]


def test_what_is_short_idle_or_not_comparable_is_left_out() -> None:
    short = [_track("t.one", "vdi", {range(30): 0.9}), _track("t.two", "vdi", {range(8): 0.5})]
    assert {one.neighbours for one in _measured(short, unknown="u")} == {()}
    assert _measured([_track("t.one", "vdi", {range(30): 0.01})], unknown="u") == []
    grown = [_track("t.one", "vdi", {range(30): 0.2, range(30, 60): 0.6}), _track("t.two", "vdi", {range(30, 60): 0.1})]
    assert [one.neighbours for one in _measured(grown, unknown="u")] == [()]
    with_gap = [_track("t.one", "vdi", {range(7): 0.5, range(20, 27): 0.5})]
    assert _measured(with_gap, unknown="u") == []


def test_a_long_episode_is_cut_into_hours() -> None:
    found = _measured([_track("t.one", "vdi", {range(180): 0.5})], unknown="u")
    assert [one.throughput for one in found] == [1.0, 1.0, 1.0]


@given(
    st.lists(
        st.tuples(st.integers(0, 80), st.integers(0, 80), st.floats(-1, 5), st.sampled_from(["vdi", "render", None])),
        max_size=5,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_tracks_give_throughputs_that_a_fit_takes(spans: list[tuple[int, int, float, str | None]]) -> None:
    tracks = [
        _track(f"t.{number}", workload, {range(first, first + length): use})
        for number, (first, length, use, workload) in enumerate(spans)
    ]
    found = _measured(tracks, unknown="unlabelled")
    assert all(0 < one.throughput <= 2 for one in found)
    assert found == _measured(list(reversed([replace(one) for one in reversed(tracks)])), unknown="unlabelled")
