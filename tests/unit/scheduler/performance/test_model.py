# SPDX-License-Identifier: Apache-2.0
"""The fitted model against a world whose slowdowns are known, and its refusals."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.scheduler.performance.true_model import TrueModel
from vgpuctl.scheduler.performance.cholesky import decompose, invert, log_determinant, solve
from vgpuctl.scheduler.performance.fit import fit
from vgpuctl.scheduler.performance.interval import Unpredictable, t_quantile
from vgpuctl.scheduler.performance.measurement import Measurement
from vgpuctl.scheduler.performance.model import (
    Impact,
    PerformanceModel,
    Prediction,
    predict_impact,
)


def _judge(world: TrueModel, model: PerformanceModel) -> tuple[float, float, int]:
    """Part of new VMs inside their interval, error of the mean, and how many were predicted."""
    inside, squares, count = 0, 0.0, 0
    for one in world.measure(1500, 1, seed=99):
        found = model.predict(one.isolation, one.workload, one.profile, one.neighbours)
        if isinstance(found, Prediction):
            inside += found.low <= one.throughput <= found.high
            squares += (found.throughput - world.throughput(one.workload, one.profile, one.neighbours)) ** 2
            count += 1
    return inside / max(1, count), math.sqrt(squares / max(1, count)), count


@pytest.mark.parametrize(("vms", "times", "error"), [(40, 3, 0.05), (150, 4, 0.03), (400, 5, 0.012)])
def test_intervals_hold_what_they_say_and_the_error_falls_with_more_data(vms: int, times: int, error: float) -> None:
    inside, error_found, count = zip(
        *(
            _judge(world, fit(world.measure(vms, times, seed=seed)))
            for seed in (1, 2, 3)
            for world in [TrueModel(seed)]
        ),
        strict=True,
    )
    assert 0.85 <= sum(inside) / 3 <= 0.97
    assert max(error_found) < error
    assert min(count) > 800


def test_a_prediction_is_refused_outside_its_data() -> None:
    world = TrueModel()
    model = fit(world.measure(80, 4, seed=5, classes=("training", "vdi")))
    cases: list[tuple[tuple[str, str, str, Sequence[str]], str]] = [
        (("best-effort", "render", "A40-8Q", ()), "no render VM was measured under best-effort"),
        (("equal-share", "training", "A40-8Q", ()), "no training VM was measured under equal-share"),
        (("best-effort", "training", "A40-4Q", ()), "never measured with profile A40-4Q"),
        (("best-effort", "training", "A40-8Q", ("render",)), "measured 0 times beside render"),
        (("best-effort", "training", "A40-8Q", ("vdi",) * 4), "at most 3 neighbours, not 4"),
    ]
    for question, reason in cases:
        answer = model.predict(*question)
        assert isinstance(answer, Unpredictable)
        assert reason in answer.reason
    few = fit([one for one in world.measure(80, 4, seed=5) if one.vm in ("vm-5-0", "vm-5-1")])
    assert all(
        "which is too little" in str(few.predict("best-effort", one.workload, "A40-8Q", ())) for one in few.classes
    )


def test_thin_data_shrink_to_what_is_common_and_widen() -> None:
    plenty = [
        Measurement(f"vm-{number}", "best-effort", "training", "A40-8Q", ("render",), 1 / (1.6 + 0.02 * (number % 3)))
        for number in range(60)
    ]
    few = [
        Measurement(f"few-{number}", "best-effort", "training", "A40-8Q", ("vdi",), 1 / (1.1 + 0.05 * number))
        for number in range(3)
    ]
    model = fit([*plenty, *few])
    known = model.predict("best-effort", "training", "A40-8Q", ["render"])
    thin = model.predict("best-effort", "training", "A40-8Q", ["vdi"])
    assert isinstance(known, Prediction)
    assert isinstance(thin, Prediction)
    assert known.throughput == pytest.approx(1 / 1.62, abs=0.01)
    assert thin.high / thin.low > known.high / known.low
    (of_class,) = model.classes
    assert of_class.cost_of("vdi")[1] > of_class.cost_of("render")[1]


def test_the_order_of_observations_does_not_matter() -> None:
    measured = TrueModel().measure(40, 3, seed=7)
    assert fit(measured) == fit(reversed(measured))


def test_what_a_vm_costs_its_neighbours_is_counted() -> None:
    model = fit(TrueModel(noise=0.01, vm_noise=0.0).measure(400, 4, seed=2))
    beside_training = predict_impact(model, "best-effort", ("vdi", "A40-8Q"), [("training", "A40-8Q")])
    beside_vdi = predict_impact(model, "best-effort", ("training", "A40-8Q"), [("vdi", "A40-8Q")])
    alone = predict_impact(model, "best-effort", ("training", "A40-8Q"), [])
    assert isinstance(alone, Impact)
    assert isinstance(beside_training, Impact)
    assert isinstance(beside_vdi, Impact)
    assert alone.lost == 0
    assert beside_training.lost == pytest.approx(beside_vdi.lost, abs=0.02)
    ((neighbour, before, after),) = beside_training.losses
    assert neighbour == ("training", "A40-8Q")
    assert before.throughput == 1 > after.throughput
    unknown = predict_impact(model, "best-effort", ("vdi", "A40-8Q"), [("unlabelled", "A40-8Q")])
    assert isinstance(unknown, Unpredictable)


@given(
    st.lists(
        st.builds(
            Measurement,
            st.sampled_from(["a", "b", "c", "d"]),
            st.just("best-effort"),
            st.sampled_from(["x", "y"]),
            st.sampled_from(["p", "q"]),
            st.lists(st.sampled_from(["x", "y"]), max_size=3).map(lambda one: tuple(sorted(one))),
            st.floats(0.01, 2.0),
        ),
        max_size=25,
    )
)
@settings(max_examples=40, deadline=None)
def test_any_measurements_give_a_model_whose_intervals_hold_its_mean(measured: list[Measurement]) -> None:
    model = fit(measured)
    for one in measured:
        found = model.predict(one.isolation, one.workload, one.profile, one.neighbours)
        if isinstance(found, Prediction):
            assert 0 < found.low <= found.throughput <= found.high < math.inf


def test_cholesky_and_student_agree_with_tables() -> None:
    matrix = [[4.0, 2.0, 0.6], [2.0, 5.0, 1.0], [0.6, 1.0, 3.0]]
    lower = decompose(matrix)
    found = solve(lower, [1.0, 2.0, 3.0])
    back = [sum(one * other for one, other in zip(row, found, strict=True)) for row in matrix]
    assert back == pytest.approx([1.0, 2.0, 3.0])
    assert [row[1] for row in invert(lower)] == pytest.approx(solve(lower, [0.0, 1.0, 0.0]))
    assert log_determinant(lower) == pytest.approx(math.log(4 * 14 - 2 * (6 - 0.6) + 0.6 * (2 - 3)))
    with pytest.raises(ValueError, match="positive definite"):
        decompose([[1.0, 2.0], [2.0, 1.0]])
    # Quantiles of printed tables of Student's distribution.
    for freedom, expected in ((4, 2.132), (10, 1.812), (30, 1.697), (120, 1.658)):
        assert t_quantile(0.95, freedom) == pytest.approx(expected, rel=0.01)


def test_equal_models_are_equal_whatever_they_were_asked() -> None:
    measured = TrueModel().measure(40, 3, seed=7)
    asked, other = fit(measured), fit(measured)
    asked.predict("best-effort", "vdi", "A40-8Q", ())
    assert asked == other != replace(other, made_at=1.0)
