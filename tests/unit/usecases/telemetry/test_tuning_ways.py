# SPDX-License-Identifier: Apache-2.0
"""Where a change of a power limit is found, by what its host shows and its layout says."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host
from tests.unit.planner.layout.simulated_host import TUNING
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.tuning import GpuTuning, UnreadSetting
from vgpuctl.errors import StateError
from vgpuctl.model.layout import GpuLayout, GpuMatch, TuningBounds, TuningLayout, VgpuLayout
from vgpuctl.usecases.observed.tuning_record import PowerChange
from vgpuctl.usecases.telemetry.tuning_ways import FoundChange, WhereFound, find_limit

GPU = "0000:41:00.0"
HOST = a40_host().facts
CHANGE = PowerChange(GPU, 250_000, 275_000, HOST.boot_id)
SILENT = GpuTuning(unread=(UnreadSetting("power_limit_mw", "NVML: Driver Not Loaded"),))
BEFORE, AFTER, ELSEWHERE = WhereFound


def entry(bounds_w: tuple[int, int] | None = None, *, declared_w: int | None = None) -> GpuLayout:
    """An entry of a layout with bounds, or a declared limit."""
    bounds = None if bounds_w is None else (1000 * bounds_w[0], 1000 * bounds_w[1])
    declared = None if declared_w is None else 1000 * declared_w
    tuning = TuningLayout(power_limit_mw=declared)
    return GpuLayout(GpuMatch(board="A40"), VgpuLayout(), "gpu1.yml:4", tuning, TuningBounds(bounds))


def shows(limit_w: int | None, *, boot_id: str = HOST.boot_id) -> HostFacts:
    """The host with its GPU at this limit; None: NVML is silent."""
    tuning = SILENT if limit_w is None else replace(TUNING, power_limit_mw=1000 * limit_w)
    return replace(HOST, boot_id=boot_id, gpus=tuple(replace(one, tuning=tuning) for one in HOST.gpus))


def found_at(limit_w: int | None, *entries: GpuLayout, boot_id: str = HOST.boot_id) -> FoundChange:
    return find_limit("gpu1", CHANGE, shows(limit_w, boot_id=boot_id), entries)


BOUNDED = entry((200, 300))
FOUND: dict[str, tuple[int | None, str, Sequence[GpuLayout], WhereFound, str]] = {
    "as-before": (250, HOST.boot_id, (BOUNDED,), BEFORE, ""),
    "made": (275, HOST.boot_id, (BOUNDED,), AFTER, ""),
    "of-somebody-else": (280, HOST.boot_id, (BOUNDED,), ELSEWHERE, "somebody else, or the driver, set it to 280 W"),
    "declared": (275, HOST.boot_id, (entry(declared_w=260),), ELSEWHERE, "the layout declares it now (gpu1.yml:4)"),
    "booted": (300, "another", (BOUNDED,), ELSEWHERE, "the host was booted"),
    "booted-and-as-before": (250, "another", (BOUNDED,), ELSEWHERE, "the host was booted"),
    "booted-and-silent": (None, "another", (BOUNDED,), ELSEWHERE, "the host was booted"),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_there_says_what_became_of_a_limit(name: str) -> None:
    limit_w, boot_id, entries, place, leave = FOUND[name]
    found = found_at(limit_w, *entries, boot_id=boot_id)
    assert found.place is place and found.leave.startswith(leave)
    assert found.is_booted is (boot_id != HOST.boot_id)


def test_a_silent_driver_says_nothing_of_the_limit() -> None:
    with pytest.raises(StateError) as silent:
        found_at(None, BOUNDED)
    assert "is not known" in silent.value.message


def test_two_entries_for_a_gpu_are_waited_for() -> None:
    with pytest.raises(StateError) as doubtful:
        found_at(275, BOUNDED, replace(entry((250, 260)), origin="gpu1.yml:9"))
    assert "is meant by" in doubtful.value.message and "gpu1.yml:9" in doubtful.value.message


BACK: dict[str, tuple[tuple[int, int] | None, int, WhereFound, int | None]] = {
    # bounds of now, the present limit, where that is, the limit that a roll back sets
    "in-the-bounds": ((200, 300), 275, AFTER, 250_000),
    "rolled-back": ((200, 300), 250, BEFORE, 250_000),
    "bounds-are-higher-now": ((260, 300), 275, AFTER, 260_000),
    "the-lowest-of-them": ((260, 300), 260, BEFORE, 260_000),
    "bounds-are-lower-now": ((150, 200), 275, AFTER, 200_000),
    "the-highest-of-them": ((150, 200), 200, BEFORE, 200_000),
    "the-change-is-the-nearest": ((275, 300), 275, BEFORE, 275_000),
    "without-bounds": (None, 275, AFTER, 250_000),
    "of-somebody-else": ((260, 300), 265, ELSEWHERE, None),
}


@pytest.mark.parametrize("name", BACK)
def test_a_roll_back_ends_in_the_bounds_of_now(name: str) -> None:
    bounds_w, limit_w, place, back_mw = BACK[name]
    found = find_limit("gpu1", CHANGE, shows(limit_w), (entry(bounds_w),), goes_back=True)
    assert (found.place, found.back_mw) == (place, back_mw)
    says_why = "since the layout does not allow 250 W any more" in found.words
    assert says_why is (place is BEFORE and back_mw != 250_000)


def test_a_limit_of_somebody_else_is_no_roll_back_while_nothing_is_rolled_back() -> None:
    assert found_at(260, entry((260, 300))).place is ELSEWHERE
    assert found_at(275, entry((275, 300))).place is AFTER


def test_a_booted_host_without_the_gpu_was_booted() -> None:
    booted = replace(HOST, boot_id="another", gpus=())
    assert find_limit("gpu1", CHANGE, booted, ()).is_booted
    assert not find_limit("gpu1", CHANGE, replace(booted, boot_id=HOST.boot_id), ()).is_booted
