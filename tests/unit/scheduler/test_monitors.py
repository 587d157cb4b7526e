# SPDX-License-Identifier: Apache-2.0
"""A request for monitors gets the smallest type that drives them, by the tables of the catalogue."""

import pytest

from tests.unit.fleet_factory import a40_host, vm
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.fleet import Fleet


@pytest.mark.parametrize(
    ("wanted", "profile"),
    [
        # A40-1B drives four heads, but not so many pixels; A40-1Q has 18432000.
        ("monitors=4x2560x1600", "A40-1Q"),
        ("monitors=5x1280x1024", None),
        # One head of 7680x4320 has 33177600 pixels, which A40-2Q has, and two of them A40-8Q.
        ("monitors=1x7680x4320", "A40-2Q"),
        ("monitors=2x7680x4320", "A40-8Q"),
        ("monitors=3x7680x4320", None),
        ("monitors=1x1280x1024,series=A", "A40-1A"),
        ("monitors=2x1280x1024,series=A", None),
        ("memory>=12GiB,monitors=1x3840x2160,series=C", "A40-12C"),
    ],
)
def test_the_smallest_type_that_drives_them_is_given(wanted: str, profile: str | None) -> None:
    placement = Fleet([a40_host("a")]).place(vm(wanted))
    assert (placement.shares[0].profile if placement else None) == profile
    if profile is None:
        answer = explain(vm(wanted), [a40_host("a")], [])
        assert isinstance(answer, list) and {one.code for one in answer} == {"no-such-type"}
        assert wanted in answer[0].reason
