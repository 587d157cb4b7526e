# SPDX-License-Identifier: Apache-2.0
"""A higher power limit: when it is advised, how far it goes, and when no controller may set it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host
from tests.unit.planner.layout.simulated_host import TUNING
from tests.unit.scheduler.advice.measured_factory import NOW, FleetBuilder
from vgpuctl.agent.wire.tuning import GpuTuning, UnreadSetting
from vgpuctl.model.layout import GpuLayout, GpuMatch, TuningBounds, TuningLayout, VgpuLayout
from vgpuctl.scheduler.advice.advice import AdviceKind, Confidence
from vgpuctl.scheduler.advice.everything import advise_all
from vgpuctl.scheduler.advice.measured import MeasuredFleet, Point
from vgpuctl.scheduler.advice.power_limit import AdvisedLimit, find_limits

GPU = "0000:41:00.0"
AT_250 = replace(TUNING, power_limit_mw=250_000)
"""Of a board that takes 150 W to 300 W."""


def fleet_of(
    tuning: GpuTuning | None = AT_250,
    power: Callable[[int], float] = lambda _before: 249.0,
    *,
    minutes: int = 120,
    declared: GpuLayout | None = None,
) -> MeasuredFleet:
    """One A40 with one measured VM. power: watts by minutes before now."""
    host = a40_host()
    gpus = tuple(replace(gpu, tuning=tuning) for gpu in host.facts.gpus)
    host = replace(host, facts=replace(host.facts, gpus=gpus), declared=() if declared is None else (declared,))
    points = tuple(
        Point(NOW - 60 * before, watts, watts, watts) for before in range(minutes, 0, -1) for watts in [power(before)]
    )
    fleet = FleetBuilder(host).vm("busy", "A40-24Q", use=lambda _before: 0.9).build()
    return replace(fleet, power={(host.name, GPU): points})


def only(fleet: MeasuredFleet) -> AdvisedLimit:
    (found,) = find_limits(fleet)
    return found


NO_TUNING, NO_BOUNDS = TuningLayout(), TuningBounds()


def entry(tuning: TuningLayout = NO_TUNING, bounds: TuningBounds = NO_BOUNDS) -> GpuLayout:
    return GpuLayout(GpuMatch(board="A40"), VgpuLayout(), "gpu1.yml:4", tuning, bounds)


def bounded(lowest_w: int, highest_w: int) -> GpuLayout:
    return entry(bounds=TuningBounds((1000 * lowest_w, 1000 * highest_w)))


def test_a_gpu_that_draws_its_limit_may_have_ten_percent_more() -> None:
    fleet = fleet_of()
    found = only(fleet)
    (advice,) = [one for one in advise_all(fleet) if one.kind is AdviceKind.POWER_LIMIT]
    assert advice == found.advice
    assert (found.before_mw, found.after_mw) == (250_000, 275_000)
    key = f"gpu1 vgpu: address {GPU} (a new entry), power_limit_w"
    assert advice.diff == [f"- {key}: 250 W, not declared", f"+ {key}: 275 W"]
    assert (advice.gain.value, advice.gain.at_most, advice.confidence) == (2.0, True, Confidence.LOW)
    assert "drew its limit of 250 W in 120 of 120 measured minutes" in advice.text
    assert advice.commands == ("vgpuctl apply-hosts --limit gpu1  # after the change of `vgpu:` in the inventory",)
    assert only(fleet_of(power=lambda before: 245.0)).advice.id == advice.id


SAYS_NOTHING: dict[str, MeasuredFleet] = {
    "calm": fleet_of(power=lambda _before: 200.0),
    "seldom": fleet_of(power=lambda before: 249.0 if before % 5 == 0 else 200.0),
    "too-short": fleet_of(minutes=59),
    "at-the-boards-own": fleet_of(replace(TUNING, power_limit_mw=300_000), lambda _before: 299.0),
    "measured-under-another-limit": fleet_of(power=lambda before: 299.0 if before > 50 else 249.0),
    "at-its-bounds": fleet_of(declared=bounded(200, 250)),
    "unread": fleet_of(replace(AT_250, unread=(UnreadSetting("power_limit_mw", "NVML: Unknown Error"),))),
    "without-limit": fleet_of(replace(AT_250, power_limit_mw=None)),
    "without-bounds-of-the-board": fleet_of(replace(AT_250, power_limits_mw=None)),
    "without-settings": fleet_of(None),
    "nan": fleet_of(power=lambda _before: float("nan")),
}


@pytest.mark.parametrize("name", SAYS_NOTHING)
def test_nothing_is_said_without_evidence_or_room(name: str) -> None:
    assert list(find_limits(SAYS_NOTHING[name])) == []


HOW_FAR: dict[str, tuple[GpuLayout | None, int, str | None]] = {
    "undeclared": (None, 275_000, "its layout has no tune.power_limit_w"),
    "no-bounds": (entry(), 275_000, "its layout has no tune.power_limit_w"),
    "bounds": (bounded(200, 300), 275_000, None),
    "narrow-bounds": (bounded(200, 260), 260_000, None),
    "beyond-the-board": (bounded(200, 400), 275_000, None),
    "declared": (
        entry(TuningLayout(power_limit_mw=250_000)),
        275_000,
        "the layout declares its power_limit_w (gpu1.yml:4), and what it declares stays",
    ),
    "bounds-above": (
        bounded(260, 300),
        275_000,
        "its power limit is 250 W, outside of tune.power_limit_w, 260 W to 300 W",
    ),
    "bounds-below": (
        bounded(150, 200),
        275_000,
        "its power limit is 250 W, outside of tune.power_limit_w, 150 W to 200 W",
    ),
}


def test_no_controller_chooses_between_two_entries() -> None:
    first, second = bounded(200, 300), replace(bounded(200, 260), origin="gpu1.yml:9")
    fleet = fleet_of(declared=first)
    found = only(replace(fleet, capacities=tuple(replace(one, declared=(first, second)) for one in fleet.capacities)))
    assert found.refusal is not None and found.refusal.startswith(
        "nobody knows what its layout says, since it is meant"
    )
    assert "gpu1.yml:4" in found.refusal and "gpu1.yml:9" in found.refusal


@pytest.mark.parametrize("name", HOW_FAR)
def test_the_layout_says_how_far_a_controller_may_go(name: str) -> None:
    declared, after_mw, refusal = HOW_FAR[name]
    found = only(fleet_of(declared=declared))
    assert (found.after_mw, found.refusal) == (after_mw, refusal)
    value = "250 W" if name == "declared" else "250 W, not declared"
    assert list(found.advice.before.values()) == [value]


def test_the_last_step_ends_at_the_boards_highest_limit() -> None:
    near = replace(TUNING, power_limit_mw=290_000)
    assert only(fleet_of(near, lambda _before: 288.0)).after_mw == 300_000
