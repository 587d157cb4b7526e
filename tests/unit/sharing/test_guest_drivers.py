# SPDX-License-Identifier: Apache-2.0
"""Guest drivers and host drivers: the ranges of vGPU versions decide, and where the sources do not, nobody guesses."""

import pytest

from vgpuctl.catalog.vgpu_versions import RANGES, parse_driver, ranges_of
from vgpuctl.planner.upgrade import GuestVerdict, check_guest, guest_branches

WORKS, BREAKS, UNKNOWN = GuestVerdict


@pytest.mark.parametrize(
    ("guest", "host", "verdict"),
    [
        ("580.65.06", "580.105.06", WORKS),
        ("550.54.16", "580.105.06", WORKS),
        ("570.86.15", "580.105.06", WORKS),
        ("535.161.07", "570.86.15", WORKS),
        ("570.86.15", "595.45.04", WORKS),
        # Moving from R580 to R590 or R595 cuts off R535 and R550.
        ("550.54.16", "590.44.01", BREAKS),
        ("535.161.07", "595.45.04", BREAKS),
        ("550.54.16", "595.45.04", BREAKS),
        # A guest that is newer than its host.
        ("580.65.06", "570.86.15", BREAKS),
        ("595.45.04", "580.105.06", BREAKS),
        # Windows' numbers of the host's own branch.
        ("582.08", "580.105.06", UNKNOWN),
        ("573.48", "570.86.15", UNKNOWN),
        ("573.48", "560.28.03", BREAKS),
        # R535 has 0x11 or 0x12, and R580 begins with 0x12.
        ("535.161.07", "580.105.06", UNKNOWN),
        # Between the tags 570.86 and 570.211 the lowest version changes from 0x07 to 0x12.
        ("535.161.07", "570.133.10", UNKNOWN),
        ("550.54.16", "570.133.10", WORKS),
        # Branches that are not in the table.
        ("470.82.01", "580.105.06", UNKNOWN),
        ("550.54.16", "600.10.01", UNKNOWN),
        (None, "580.105.06", UNKNOWN),
    ],
)
def test_the_ranges_decide(guest: str | None, host: str, verdict: GuestVerdict) -> None:
    check = check_guest(guest, host)
    assert (check.verdict, bool(check.reason)) == (verdict, True)


def test_a_branch_is_answered_for_all_its_drivers() -> None:
    answers = {one.branch: one.verdict for one in guest_branches("595.45.04")}
    assert {name for name, verdict in answers.items() if verdict is BREAKS} == {
        *("R535", "R550", "R555", "R560", "R565"),
    }
    assert {name for name, verdict in answers.items() if verdict is WORKS} == {"R570", "R575", "R580", "R590", "R595"}
    assert {one.branch for one in guest_branches("550.54.16") if one.verdict is BREAKS} >= {"R555", "R595"}


def test_versions_are_read_and_others_are_not() -> None:
    assert parse_driver("570.133.10") == (570, 133)
    assert parse_driver("570") == (570, None)
    assert parse_driver("latest") is None and parse_driver("570.x") is None


def test_the_table_is_sound() -> None:
    for one in RANGES:
        assert one.first <= one.last and one.highest == tuple(sorted(one.highest))
        assert one.lowest is None or one.lowest < one.highest[0]
        assert ranges_of(one.branch, one.first) == (one,)
    assert len(ranges_of(570, 133)) == 2 and ranges_of(600, 1) == ()
