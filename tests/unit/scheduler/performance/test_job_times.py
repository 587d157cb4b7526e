# SPDX-License-Identifier: Apache-2.0
"""How long jobs take on unequal cards, and where the policy `predicted` then places."""

import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.proof.unequal import FEW_BOARDS, FEW_SIZES, draw, judge_all
from tests.unit.fleet_factory import a40_host, t4_host, vm
from vgpuctl.errors import UsageError
from vgpuctl.model.constraints import Constraints
from vgpuctl.model.host_constraints import GpuConstraints, HostConstraints
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.performance.episodes import Track, cut_into_episodes, time_alone
from vgpuctl.scheduler.performance.interval import Unpredictable
from vgpuctl.scheduler.performance.job_times import BoardSpeed, JobTime, JobTimes, TimedJob, fit_times
from vgpuctl.scheduler.performance.model import PerformanceModel
from vgpuctl.scheduler.place import place
from vgpuctl.scheduler.predict import predict_candidates, predict_jobs
from vgpuctl.scheduler.scorer import FleetView, view_of
from vgpuctl.usecases.measured.performance import read_model, write_model
from vgpuctl.usecases.telemetry.fit_performance import fit_performance
from vgpuctl.wiring import Settings, open_services

A40, T4 = "nvidia-a40", "nvidia-t4"


def timed(board: str, factor: float, workload: str = "matmul") -> list[TimedJob]:
    """Jobs of some sizes, each twice, that grow with the third power."""
    seconds = [(size, factor * (size / 1000) ** 3) for size in (1000, 2000, 4000, 8000)]
    return [TimedJob(workload, board, float(size), usual * one) for size, usual in seconds for one in (0.98, 1.02)]


def time_of(times: JobTimes, board: str, size: float | None, workload: str = "matmul") -> JobTime:
    """The predicted time."""
    found = times.predict(workload, board, size)
    assert isinstance(found, JobTime), found
    return found


def why(found: object) -> str:
    """The reason of no prediction."""
    assert isinstance(found, Unpredictable)
    return found.reason


def test_on_a_fleet_whose_truth_is_known_the_error_is_small_and_the_interval_holds_nine_in_ten() -> None:
    for noise, repeats in ((0.02, 2), (0.04, 1), (0.04, 4), (0.08, 2)):
        found = judge_all(8, noise, repeats, seed=2)
        assert found["error_mean"] <= 0.05, (noise, repeats, found)
        assert 0.85 <= found["inside_90"] <= 0.955, (noise, repeats, found)


def test_of_a_small_table_the_interval_still_holds_most_jobs_where_they_vary_more_than_is_believed() -> None:
    for noise, least in ((0.02, 0.9), (0.04, 0.85), (0.08, 0.78)):
        found = judge_all(20, noise, 1, 2, FEW_SIZES, FEW_BOARDS)
        assert found["inside_90"] >= least, (noise, found)


def test_a_size_between_those_that_were_timed_is_predicted_for_each_board() -> None:
    times = fit_times([*timed(A40, 1.0), *timed(T4, 4.0)])
    fast, slow = time_of(times, A40, 3000), time_of(times, T4, 3000)
    assert fast.seconds == pytest.approx(27, rel=0.03)
    assert slow.seconds == pytest.approx(108, rel=0.03)
    assert fast.low < fast.seconds < fast.high < slow.low
    assert fast.measured == 8
    speed = times.speed("matmul", T4)
    assert isinstance(speed, BoardSpeed)
    assert speed.speed == pytest.approx(0.25, rel=0.03)
    assert speed.low < speed.speed < speed.high < 0.3
    assert times.speed("matmul", A40) == BoardSpeed(1.0, 1.0, 1.0, 8)


def test_a_larger_job_takes_longer_on_every_board() -> None:
    truth = draw(random.Random(5))
    jobs = [
        TimedJob("matmul", board, float(size), card.seconds(size, 100))
        for board, card in truth.items()
        for size in (1024, 2048, 4096, 8192, 16384)
    ]
    times = fit_times(jobs)
    for board in truth:
        found = [time_of(times, board, 1024 * 1.1**step).seconds for step in range(29)]
        assert all(one < after for one, after in pairwise(found)), board


def test_equal_jobs_in_any_order_give_an_equal_fit() -> None:
    jobs = [*timed(A40, 1.0), *timed(T4, 4.0), *timed(A40, 2.0, "fft")]
    assert fit_times(jobs) == fit_times(list(reversed(jobs)))


def test_nothing_is_predicted_outside_the_data() -> None:
    times = fit_times([*timed(A40, 1.0), *timed(T4, 4.0)[:2]])
    assert "no fft job was timed" in why(times.predict("fft", A40, 2000))
    assert "3 are needed" in why(times.predict("matmul", T4, 2000))
    assert "0 times on nvidia-l4" in why(times.predict("matmul", "nvidia-l4", 2000))
    assert "from 1000 to 8000" in why(times.predict("matmul", A40, 20_000))
    assert "name one" in why(times.predict("matmul", A40, None))
    assert "3 are needed" in why(times.speed("matmul", T4))
    assert times.speed("fft", A40) is None
    assert why(fit_times(timed(A40, 1.0)[:1]).predict("matmul", A40, 1000))


def test_a_class_without_sizes_and_one_of_a_single_size() -> None:
    times = fit_times([TimedJob("train", A40, None, one) for one in (100.0, 102.0, 98.0)])
    assert time_of(times, A40, None, "train").seconds == pytest.approx(100, rel=0.01)
    assert "without sizes" in why(times.predict("train", A40, 5))
    single = fit_times([TimedJob("one", A40, 4096.0, one) for one in (10.0, 10.2, 9.8)])
    assert time_of(single, A40, 4096, "one").seconds == pytest.approx(10, rel=0.01)
    assert why(single.predict("one", A40, 9000))


def some(board: str, seconds: dict[float, float], times: int = 1) -> list[TimedJob]:
    """Jobs by size, each so many times."""
    return [TimedJob("matmul", board, size, took) for size, took in seconds.items() for _ in range(times)]


L4 = "nvidia-l4"
CUBIC = {100.0 * step: 0.01 * step**3 for step in range(1, 10)}
KINK = {100.0: 0.01, 200.0: 0.01, 300.0: 0.01, 400.0: 5.0}
UNSEEN = [
    ("one size", some(A40, {100: 1}, 3) + some(T4, {100: 1}, 3), (T4, 81.0), "size 100 alone"),
    ("one size, a little more", some(A40, {100: 1}, 3), (A40, 100.5), "3 sizes are needed"),
    ("two sizes", some(A40, {1000: 1}, 3) + some(A40, {2000: 8}), (A40, 1400.0), "1000 and 2000 alone"),
    ("one size of one board", some(A40, CUBIC) + some(T4, {300: 1}, 3), (T4, 330.0), "3 sizes are needed"),
    ("sizes near each other", some(A40, {100: 1, 100.1: 1, 100.2: 1}), (A40, 101.0), "from 100 to 100.2"),
    ("a kink", some(A40, KINK), (A40, 250.0), "no smooth curve"),
    ("a kink at a size that was timed", some(A40, KINK), (A40, 100.0), "no smooth curve"),
    ("a kink that is timed often", some(A40, KINK, 10), (A40, 350.0), "no smooth curve"),
    ("a kink after five", some(A40, {**KINK, 400: 0.01, 500: 5}), (A40, 450.0), "no smooth curve"),
    ("a kink of three", some(A40, {100: 0.01, 200: 0.01, 400: 5}), (A40, 150.0), "no smooth curve"),
    ("a kink on one board", some(L4, CUBIC, 4) + some(T4, KINK, 4), (T4, 150.0), "no smooth curve"),
]


@pytest.mark.parametrize(("jobs", "asked", "reason"), [one[1:] for one in UNSEEN], ids=[one[0] for one in UNSEEN])
def test_a_size_of_which_the_table_says_nothing_is_unknown(
    jobs: list[TimedJob], asked: tuple[str, float], reason: str
) -> None:
    assert reason in why(fit_times(jobs).predict("matmul", *asked))


def test_a_kink_on_one_board_leaves_the_others_as_they_are() -> None:
    times = fit_times([*some(A40, CUBIC, 4), *some(L4, CUBIC, 4), *some(T4, KINK, 4)])
    kept = time_of(times, A40, 450)
    assert kept.seconds == pytest.approx(0.911, rel=0.02)
    assert kept.high / kept.low < 2
    assert "no smooth curve" in why(times.speed("matmul", T4))
    speed = times.speed("matmul", L4)
    assert isinstance(speed, BoardSpeed) and speed.speed == pytest.approx(1, rel=0.02)


def test_a_misfit_of_the_curve_widens_the_interval_however_often_each_size_was_timed() -> None:
    bent = {**CUBIC, 500.0: 1.3 * CUBIC[500.0]}
    for often in (1, 5):
        found = time_of(fit_times(some(A40, bent, often)), A40, 500)
        assert found.low <= bent[500.0] <= found.high, often


@pytest.mark.parametrize("sizes", [(1000, 2000), (1000, 2000, 4000), (1000, 1500, 2000, 3000)])
def test_few_sizes_that_agree_are_predicted_where_they_were_timed(sizes: tuple[int, ...]) -> None:
    times = fit_times(some(A40, {size: (size / 1000) ** 3 for size in sizes}, 2))
    for size in sizes:
        found = time_of(times, A40, size)
        assert found.low < (size / 1000) ** 3 < found.high < 1.2 * found.low


def test_boards_are_compared_at_a_size_that_both_were_timed_near() -> None:
    low, high = {100.0 + step: 1.0 + step / 100 for step in (0, 10, 20, 30)}, (10000.0, 11000.0, 12000.0, 13000.0)
    apart = fit_times([*some(T4, low), *some(A40, {size: size / 1e5 for size in high})])
    known = [board for board in (T4, A40) if isinstance(apart.speed("matmul", board), BoardSpeed)]
    assert len(known) == 1, "nobody timed both near one size"
    three = fit_times(
        [*some(T4, low), *some(A40, {one: one / 1e5 for one in high}), *some(L4, {one: one / 1e4 for one in high})]
    )
    assert "from 100 to 130" in why(three.speed("matmul", T4))
    assert three.speed("matmul", A40) == BoardSpeed(1.0, 1.0, 1.0, 4)
    speed = three.speed("matmul", L4)
    assert isinstance(speed, BoardSpeed) and speed.speed == pytest.approx(0.1, rel=0.02)
    two = fit_times([*some(A40, {1000: 1, 2000: 8}, 2), *some(T4, {1000: 4, 2000: 32}, 2)])
    speed = two.speed("matmul", T4)
    assert isinstance(speed, BoardSpeed) and speed.speed == pytest.approx(0.25, rel=0.02)


def test_readings_tell_the_speed_of_boards_and_no_time() -> None:
    """The truth: a T4 has a third of the speed, and VMs of a class differ by a tenth."""
    dice = random.Random(4)
    tracks = []
    for number in range(60):
        board, use = ((A40, 0.2), (T4, 0.6))[number % 2]
        mean = use * dice.lognormvariate(0, 0.1)
        minutes = {60 * minute: mean * dice.lognormvariate(0, 0.1) for minute in range(40)}
        tracks.append(Track(f"vm{number}", (f"{board} {number}", "gpu"), "best-effort", "answers", "8Q", minutes))
    boards = {track.place: track.place[0].split()[0] for track in tracks}
    always = {60 * minute: 1.0 for minute in range(40)}
    saturated = Track("busy", (f"{A40} x", "gpu"), "best-effort", "answers", "8Q", always)
    boards[saturated.place] = A40
    jobs = time_alone(cut_into_episodes([*tracks, saturated], unknown="unlabelled"), boards)
    assert len(jobs) == 60, "a VM that uses all of a GPU does not compare"
    times = fit_times(jobs)
    speed = times.speed("answers", T4)
    assert isinstance(speed, BoardSpeed)
    assert speed.speed == pytest.approx(1 / 3, rel=0.05)
    assert speed.low < 1 / 3 < speed.high
    assert "tell no job's time" in why(times.predict("answers", T4, None))


def test_what_was_timed_counts_before_readings_and_other_classes_stay() -> None:
    read = fit_times([TimedJob("matmul", A40, None, 0.5, is_read=True)] * 3)
    table = fit_times(timed(A40, 1.0))
    assert table.with_later(read) == table
    assert read.with_later(table) == table
    assert fit_times([*timed(A40, 1.0), TimedJob("matmul", A40, None, 0.5, is_read=True)]) == table
    other = fit_times(timed(T4, 1.0, "fft"))
    assert [one.workload for one in table.with_later(other).classes] == ["fft", "matmul"]


def test_the_file_keeps_what_was_fitted_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.performance"
    model = PerformanceModel(times=fit_times([*timed(A40, 1.0), *timed(T4, 4.0)]), made_at=5.0)
    write_model(path, model)
    assert read_model(path) == model
    written = json.loads(path.read_text())
    (kept,) = written["model"]["times"]["classes"]
    damages: tuple[dict[str, object], ...] = (
        {"mean": []},
        {"covariance": [[1.0]]},
        {"boards": {A40: 8}},
        {"sizes": {}},
        {"sizes": {A40: [1000.0], T4: []}},
        {"sizes": {A40: [2000.0, 1000.0], T4: [1000.0]}},
        {"sizes": {A40: [0.0], T4: [1000.0]}},
        {"misfits": {A40: [0.1, 0.0]}},
        {"noise": "a"},
        {"noise": 1e200},
        {"misfits": {A40: [1e200, 4.0]}},
        {"reach": 1e-200},
        {"reach": -1.0},
        {"middle": 1e9},
        {"freedom": 0},
    )
    for damage in damages:
        changed = {**written, "model": {**written["model"], "times": {"classes": [{**kept, **damage}]}}}
        path.write_text(json.dumps(changed))
        with pytest.raises(UsageError):
            read_model(path)
    path.write_text(json.dumps({**written, "model": {"classes": [], "made_at": 1.0, "source": "before times"}}))
    assert read_model(path).times == JobTimes()
    absurd = {**kept, "mean": [1e9] * len(kept["mean"])}
    path.write_text(json.dumps({**written, "model": {**written["model"], "times": {"classes": [absurd]}}}))
    assert isinstance(read_model(path).times.speed("matmul", T4), BoardSpeed | Unpredictable), "no traceback"


def test_a_model_is_replaced_only_where_it_is_damaged_and_that_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    settings = Settings((str(tmp_path / "none.yml"),), f"sqlite:///{tmp_path}/store.db", None)
    table, path = tmp_path / "times.csv", tmp_path / "store.db.performance"
    table.write_text("size,A40\n1000,1\n2000,8\n4000,64\n")
    with open_services(settings, said.append) as services:
        for text, is_refused in (('{"layout": 2, "model": {}}', True), ("{", False), ('{"layout": 1}', False)):
            path.write_text(text)
            if is_refused:
                with pytest.raises(UsageError, match="layout 2"):
                    fit_performance(services, table=None, since_s=1.0, times=table)
                assert path.read_text() == text
            else:
                fit_performance(services, table=None, since_s=1.0, times=table)
                assert "is no model of throughput" in said[-1] and "what it had is lost" in said[-1]
                assert read_model(path).times.classes
        assert len(said) == 2
        path.unlink()
        path.mkdir()
        with pytest.raises(UsageError):
            fit_performance(services, table=None, since_s=1.0, times=table)


def declaring(capacity: HostCapacity, speed: float) -> HostCapacity:
    """The host with a speed of its GPUs in the inventory."""
    return replace(capacity, constraints=HostConstraints(gpus=(GpuConstraints(speed=speed),)))


def chosen(fleet: list[HostCapacity], model: PerformanceModel, workload: str = "matmul") -> str:
    """The host that `predicted` takes for 8 GiB on any board."""
    request = replace(vm("memory=8GiB"), workload=workload, constraints=Constraints(policy="predicted"))
    return place(request, fleet, (), view=view_of(request, fleet, None, model=model)).host


def test_predicted_takes_the_faster_card_and_a_declared_speed_overrides() -> None:
    model = PerformanceModel(times=fit_times([*timed(A40, 4.0), *timed(T4, 1.0)]))
    fleet = [a40_host("gpu1"), t4_host("gpu2")]
    assert chosen(fleet, model) == "gpu2", "the truth is that the T4 is faster here"
    turned = PerformanceModel(times=fit_times([*timed(A40, 1.0), *timed(T4, 4.0)]))
    assert chosen([t4_host("gpu1"), a40_host("gpu2")], turned) == "gpu2"
    assert chosen([fleet[0], declaring(fleet[1], 0.1)], model) == "gpu1"
    assert chosen(fleet, model, "unknown") == chosen(fleet, PerformanceModel()), "boards are equal for it"
    half = PerformanceModel(times=fit_times(timed(T4, 1.0)))
    assert chosen(fleet, half) == "gpu2", "nobody knows how fast the A40 is"


def test_explained_candidates_have_the_speed_with_its_interval() -> None:
    model = PerformanceModel(times=fit_times([*timed(A40, 1.0), *timed(T4, 4.0)]))
    request = replace(vm("memory=8GiB"), workload="matmul")
    fleet = [t4_host("gpu1"), declaring(a40_host("gpu2"), 0.5), a40_host("gpu3")]
    found = {one.host: one for one in predict_candidates(request, fleet, (), FleetView(model=model))}
    speeds = {name: one.speed for name, one in found.items()}
    assert speeds["gpu1"] is not None and speeds["gpu1"].speed == pytest.approx(0.25, rel=0.03)
    assert speeds["gpu2"] == BoardSpeed(0.5, 0.5, 0.5, 0)
    assert speeds["gpu3"] == BoardSpeed(1.0, 1.0, 1.0, 8)


def test_a_job_is_predicted_on_every_card_of_the_fleet() -> None:
    times = fit_times([*timed(A40, 1.0), *timed(T4, 4.0)])
    fleet = [t4_host("gpu1"), a40_host("gpu2"), declaring(t4_host("gpu3"), 0.5)]
    found = predict_jobs(times, "matmul", 2000, fleet)
    assert [(one.host, one.board, one.is_declared) for one in found] == [
        ("gpu2", A40, False),
        ("gpu3", T4, True),
        ("gpu1", T4, False),
    ]
    seconds = [one.time.seconds for one in found if one.time is not None]
    assert seconds == pytest.approx([8, 16, 32], rel=0.03)
    nothing = predict_jobs(times, "matmul", 1e6, fleet)
    assert {one.time for one in nothing} == {None}
    reasons = {one.host: one.reason or "" for one in nothing}
    assert "from 1000 to 8000" in reasons["gpu1"] and "from 1000 to 8000" in reasons["gpu2"]
    assert reasons["gpu3"] == "matmul has no time on any board"


def test_a_declared_speed_counts_where_the_fastest_board_is_known() -> None:
    fleet, cubes = [declaring(a40_host("gpu1"), 0.5)], {size: (size / 1000) ** 3 for size in (1000.0, 2000.0, 4000.0)}
    apart = [*some(A40, cubes), *some(T4, {size / 10: took / 100 for size, took in cubes.items()})]
    (unknown,) = predict_jobs(fit_times(apart), "matmul", 200, fleet)
    assert unknown.time is None and "from 1000 to 4000 on nvidia-a40" in (unknown.reason or "")
    slower = [*some(A40, {100.0: 0.001, **cubes}), *some(T4, {size: 4 * took for size, took in cubes.items()})]
    (known,) = predict_jobs(fit_times(slower), "matmul", 200, fleet)
    assert known.time is not None and known.time.seconds == pytest.approx(0.016, rel=0.05)
    once = [*some(A40, cubes), *some(T4, {100.0: 1e-6})]
    (counted,) = predict_jobs(fit_times(once), "matmul", 2000, fleet)
    assert counted.time is not None, "a board that was timed once does not count"
