# SPDX-License-Identifier: Apache-2.0
"""Values, links and charts as the pages write them."""

import math
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as some_of

from vgpuctl.agent.wire.measures import MEASURES, VGPU
from vgpuctl.agent.wire.readings import Measured
from vgpuctl.model.event import Actor
from vgpuctl.model.lease import LeaseState
from vgpuctl.telemetry.history import Sample
from vgpuctl.usecases.telemetry.serve_web import Chart, Series
from vgpuctl.web import charts, wording
from vgpuctl.web.drawing import tenant_styles


class Colour(Enum):
    """An enumeration without words."""

    RED = 1


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("utilization_ratio", 0.436, "44 %"),
        ("utilization_ratio", 0.004, "0.4 %"),
        ("utilization_ratio", 0.0, "0 %"),
        ("share_utilization_ratio", 1.8, "180 %"),
        ("framebuffer_used_bytes", 48 * 2**30, "48 GiB"),
        ("framebuffer_used_bytes", 1536.0, "1.5 KiB"),
        ("framebuffer_used_bytes", 0.0, "0 B"),
        ("power_watts", 287.4, "287 W"),
        ("temperature_celsius", 61.0, "61 °C"),
        ("sm_clock_hertz", 1.755e9, "1.8 GHz"),
        ("reading_seconds", 0.25, "0.2 s"),
        ("cpu_seconds", 5900.0, "1h38m"),
        ("license_expiry_timestamp_seconds", 0.0, "1970-01-01 00:00 UTC"),
        ("license_expiry_timestamp_seconds", 1e300, "unknown UTC"),
        ("encoder_sessions", 3.0, "3"),
        ("xid", 12345.0, "12,345"),
        ("power_watts", math.inf, "inf"),
        ("power_watts", math.nan, "nan"),
        ("power_watts", -5.0, "-5 W"),
    ],
)
def test_a_value_is_written_in_the_unit_of_its_measure(name: str, value: float, written: str) -> None:
    assert wording.amount(name, value) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (3, 3),
        (LeaseState.RUNNING, "running"),
        (["a", None, LeaseState.BUILT], "a, , built"),
        ("a\u202eb\x07", "a\\u202eb\\x07"),
        (Actor("web", "root\x07", "vm"), "root\\x07@vm"),
    ],
)
def test_a_value_is_written_for_people(value: object, written: object) -> None:
    assert wording.finalize(value) == written


@pytest.mark.parametrize("value", [{"a": 1}, Sample(0, 1, 1.0, 1.0, 1.0), object(), Colour.RED])
def test_what_has_no_words_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="no words"):
        wording.finalize(value)


@given(value=some_of.floats())
def test_every_number_of_every_measure_can_be_written(value: float) -> None:
    assert all(wording.amount(one.name, value) for one in MEASURES)


def test_a_state_is_told_by_its_name_and_zeros_are_left_out() -> None:
    measured = Measured(
        (
            ("license_state", ("licensed",), 1.0),
            ("license_state", ("unlicensed",), 0.0),
            ("encoder_sessions", (), 0.0),
            ("made_up", ("a", "b"), 2.0),
        ),
        (("utilization_ratio", "not-readable", "the driver hangs"),),
    )
    assert wording.measured_lines(VGPU, measured) == [
        ("License state", "", "licensed"),
        ("Encoder sessions", "", "0"),
        ("Made up", "a, b", "2"),
        ("Utilization", "", "not-readable: the driver hangs"),
    ]


def test_names_of_measures_are_written_for_people() -> None:
    assert [
        wording.title(one) for one in ("sm_clock_hertz", "nvlink_active_links", "license_expiry_timestamp_seconds")
    ] == [
        "SM clock",
        "NVLink active links",
        "License expiry",
    ]


def test_forty_tenants_differ_in_colour_or_pattern() -> None:
    assert len(set(tenant_styles([f"tenant-{number}" for number in range(40)]).values())) == 40


@given(host=some_of.text(), gpu=some_of.text())
def test_a_link_has_no_character_that_ends_an_attribute_or_a_path(host: str, gpu: str) -> None:
    link = wording.gpu_link(host, gpu)
    assert link.isascii() and link.count("/") == 4 and not set(link) & set("\"'<>&?# \\")


def _chart(measure: str, *series: list[Sample], since: float = 0.0, until: float = 600.0) -> charts.DrawnChart:
    named = tuple(Series(f"vm-{number}" if len(series) > 1 else "", tuple(one)) for number, one in enumerate(series))
    return charts.draw(Chart(measure, "A text.", since, until, 60, named))


def test_a_line_goes_through_the_means_and_its_band_from_lowest_to_highest() -> None:
    drawn = _chart("utilization_ratio", [Sample(0, 4, 0.5, 0.25, 1.0), Sample(60, 4, 0.0, 0.0, 0.0)])
    (line,) = drawn.lines
    assert drawn.top == "100 %"
    assert line.pieces == ("30.0,50.0 90.0,100.0",)
    assert line.band == ("30.0,0.0 90.0,100.0 90.0,100.0 30.0,75.0",)
    assert (line.last, line.mean, line.high) == ("0 %", "25 %", "100 %")
    assert drawn.words == "Utilization: value now 0 %, mean 25 %, highest 100 %"


def test_a_hole_parts_a_line_and_a_lonely_sample_is_a_dot() -> None:
    samples = [Sample(at, 1, 1.0, 1.0, 1.0) for at in (0, 60, 300, 480, 540)]
    (line,) = _chart("power_watts", samples).lines
    assert len(line.pieces) == 2 and line.dots == (("330.0", "0.0"),)


def test_the_scale_is_a_round_number_above_every_value() -> None:
    for measure, high, top in (
        ("power_watts", 287.0, "500 W"),
        ("power_watts", 0.0, "1 W"),
        ("framebuffer_used_bytes", 3e9, "4 GiB"),
        ("share_utilization_ratio", 1.3, "150 %"),
    ):
        assert _chart(measure, [Sample(0, 1, high, high, high)]).top == top


def test_of_many_series_the_highest_are_drawn_and_the_rest_is_counted() -> None:
    drawn = _chart("utilization_ratio", *([Sample(0, 1, one / 20, one / 20, one / 20)] for one in range(12)))
    assert [one.label for one in drawn.lines] == sorted(f"vm-{one}" for one in range(4, 12))
    assert drawn.left_out == 4 and not any(one.band for one in drawn.lines)


@given(
    values=some_of.lists(some_of.tuples(some_of.floats(), some_of.floats()), min_size=1, max_size=6),
    measure=some_of.sampled_from(["utilization_ratio", "power_watts", "framebuffer_used_bytes"]),
)
def test_no_value_of_a_foreign_history_breaks_a_chart(values: list[tuple[float, float]], measure: str) -> None:
    drawn = _chart(measure, [Sample(at, 1, value, value, value) for at, value in values])
    for line in drawn.lines:
        for points in line.pieces:
            numbers = [float(one) for point in points.split() for one in point.split(",")]
            assert all(0 <= one <= 600 for one in numbers)
