# SPDX-License-Identifier: Apache-2.0
"""Values of the command line are read within bounds: long, odd and huge ones are refused, and at once."""

from collections.abc import Callable
from typing import Any

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.guest_memory import parse_page_size
from vgpuctl.model.times import is_within, parse_duration, parse_time, parse_window
from vgpuctl.model.units import parse_mib

PARSERS: dict[str, Callable[[str], Any]] = {
    "size": lambda text: parse_mib(text, what="--memory"),
    "page size": lambda text: parse_page_size(text, what="--hugepages"),
    "duration": lambda text: parse_duration(text, what="--for"),
    "time": lambda text: parse_time(text, what="--since"),
    "GPU": parse_gpu_request,
    "GPU memory": lambda text: parse_gpu_request(f"memory>={text}"),
}
ODD = {
    "400 digits": "9" * 400,
    "400 digits of GiB": "9" * 400 + "GiB",
    "5,000 digits of KiB": "9" * 5000 + "k",
    "half a million digits": "1" * 500_000,
    "many parts": "1h" * 100_000,
    "a NUL": "1\0",
    "half a character": "1\ud800",
    "other digits": "٣GiB",
    "a size that is too large": "9" * 30 + "T",
    "5,000 GPUs' digits": "9" * 5000 + "*A40-8Q",
    "nothing": "",
    "not a number": "nan",
    "endless": "1e999",
}


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_value_is_refused_in_one_short_line(parser: str, odd: str) -> None:
    try:
        PARSERS[parser](ODD[odd])
    except UsageError as refused:
        assert len(refused.message) < 600
    else:
        assert parser == "GPU", "only a profile can have any name"


@pytest.mark.parametrize(
    "text", ["9999-12", "9999-12-02", "0001-01-01T00:00+23:59", "1969-12-31", "9999-12-31T23:59-23:59"]
)
def test_a_time_near_the_ends_of_the_calendar_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="is no time"):
        parse_time(text, what="--from")


@pytest.mark.parametrize(
    ("window", "inside", "outside"),
    [
        ("22:00-06:00", (22.0, 23.9, 0.0, 5.9), (6.0, 12.0, 21.9)),
        ("09:30-17:00", (9.5, 16.9), (9.4, 17.0, 0.0)),
        ("00:00-24:00", (0.0, 23.9), ()),
    ],
)
def test_a_part_of_the_day_may_pass_midnight(
    window: str, inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    read = parse_window(window, what="--window")
    day = 86_400 * 20_000
    assert all(is_within(read, day + hour * 3600) for hour in inside)
    assert not any(is_within(read, day + hour * 3600) for hour in outside)


@pytest.mark.parametrize("text", ["", "22:00", "22:00-6:00", "24:00-06:00", "10:00-10:00", "10:60-11:00", "1-2"])
def test_what_is_no_part_of_a_day_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--window"):
        parse_window(text, what="--window")
