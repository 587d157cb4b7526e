# SPDX-License-Identifier: Apache-2.0
"""Scenarios: files of curves, for the devices that a host has when they are played."""

from pathlib import Path

import pytest

from vgpuctl.errors import UsageError
from vgpuctl_lab.cli.play import command
from vgpuctl_lab.scenarios import Scenario, Target, compile_scenario, read_scenario, shipped

PF, OTHER = "0000:41:00.0", "0000:43:00.0"
TARGETS = [
    Target("gpu", f"gpu:{PF}", PF, 48 << 30),
    Target("gpu", f"gpu:{OTHER}", OTHER, 48 << 30),
    Target("vgpu", "vgpu:0000:41:00.4", PF, 8 << 30),
    Target("vgpu", "vgpu:0000:41:00.5", PF, 8 << 30),
    Target("vgpu", "vgpu:0000:41:00.6", PF, 8 << 30),
    Target("vgpu", "vgpu:0000:43:00.4", OTHER, 8 << 30),
    Target("vm", "vm:11111111-2222-4333-8444-555555555555"),
]


def written(folder: Path, text: str) -> Scenario:
    """A scenario of one curve with these lines."""
    path = folder / "mine.yml"
    path.write_text(f"about: A test\ncurves:\n  - {text}\n")
    return read_scenario(str(path))


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_scenario_can_be_played(name: str) -> None:
    scenario = read_scenario(name)
    assert scenario.about
    assert compile_scenario(scenario, TARGETS, started_at=1000.0).curves


def test_the_neighbours_share_what_the_noisy_one_leaves() -> None:
    curves = compile_scenario(read_scenario("noisy-neighbour"), TARGETS, started_at=1000.0)
    at_once = {target: curves.value(target, "utilization_ratio", 1100.0) for target, _ in curves.curves}
    assert at_once == {"vgpu:0000:41:00.4": 0.92, "vgpu:0000:41:00.5": 0.04, "vgpu:0000:41:00.6": 0.04}


def test_a_leak_ends_at_the_size_of_the_framebuffer() -> None:
    curves = compile_scenario(read_scenario("memory-leak"), TARGETS, started_at=0.0)
    assert curves.value("vgpu:0000:41:00.4", "framebuffer_used_bytes", 600.0) == 8 << 30


def test_a_time_may_follow_the_start() -> None:
    curves = compile_scenario(read_scenario("licence-lost"), TARGETS, started_at=5000.0)
    assert curves.value("vgpu:0000:41:00.4", "license_expiry_timestamp_seconds", 5000.0) == 5030


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("gpu", [f"gpu:{PF}", f"gpu:{OTHER}"]),
        ("gpu:2", [f"gpu:{OTHER}"]),
        (f"gpu:{OTHER}", [f"gpu:{OTHER}"]),
        ("gpu:others", []),
    ],
)
def test_a_target_is_all_the_nth_the_others_or_a_name(target: str, found: list[str], tmp_path: Path) -> None:
    scenario = written(tmp_path, f'{{target: "{target}", measure: power_watts, points: {{0s: 100}}}}')
    curves = compile_scenario(scenario, TARGETS, started_at=0.0)
    assert [one for one, _ in curves.curves] == found


def test_points_may_be_written_in_any_order_and_unit(tmp_path: Path) -> None:
    scenario = written(
        tmp_path, "{target: 'gpu:1', measure: power_watts, repeat: 2m, points: {90s: 3, 1m: 2.5, '0': 1, 100s: 4}}"
    )
    [curve] = compile_scenario(scenario, TARGETS, started_at=0.0).curves.values()
    assert (curve.points, curve.repeat_s) == (((0, 1), (60, 2.5), (90, 3), (100, 4)), 120)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{target: card, measure: power_watts, points: {0s: 1}}", "is of no kind 'card'"),
        ("{target: gpu, measure: volts, points: {0s: 1}}", "'volts' is no measure of gpu"),
        ("{target: gpu, measure: xid, points: {0s: 1}}", "has not the form xid/XID"),
        ("{target: gpu, measure: power_watts/x, points: {0s: 1}}", "has not the form power_watts"),
        ("{target: gpu, measure: xid/, points: {0s: 1}}", "has not the form xid/XID"),
        ("{target: gpu, measure: 'xid/7 9', points: {0s: 1}}", "has not the form xid/XID"),
        ("{target: gpu, measure: power_watts, points: {}}", "has 0 points"),
        ("{target: gpu, measure: power_watts, points: {0s: -1}}", "is -1"),
        ("{target: gpu, measure: power_watts, points: {0s: .nan}}", "is nan"),
        ("{target: gpu, measure: power_watts, points: {0s: much}}", "not a number"),
        ("{target: gpu, measure: power_watts, points: {soon: 1}}", "'soon' is no duration"),
        ("{target: gpu, measure: power_watts, points: {-5s: 1}}", "is not from 0"),
        ("{target: gpu, measure: power_watts, points: {1m: 1, 60s: 2}}", "has a time twice"),
        ("{target: gpu, measure: power_watts}", "has no 'points'"),
        ("{target: gpu, measure: power_watts, points: {0s: 1}, speed: 2}", "is not a key of a scenario"),
        ("{target: gpu, measure: power_watts, points: {0s: 1}, split: 3}", "not true or false"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        written(tmp_path, text)
    assert said in refused.value.message
    assert "mine.yml:" in refused.value.message


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("vgpu:5", "the host has no vgpu:5"),
        ("vgpu:0", "the host has no vgpu:0"),
        ("vgpu:0000:99:00.4", "the host has no vgpu:0000:99:00.4"),
        ("gpu_instance", "the host has no gpu_instance"),
    ],
)
def test_a_target_that_the_host_has_not_is_refused(target: str, said: str, tmp_path: Path) -> None:
    scenario = written(tmp_path, f'{{target: "{target}", measure: utilization_ratio, points: {{0s: 1}}}}')
    with pytest.raises(UsageError) as refused:
        compile_scenario(scenario, TARGETS, started_at=0.0)
    assert refused.value.message == said


def test_a_scenario_that_is_not_there_names_the_others() -> None:
    with pytest.raises(UsageError) as refused:
        read_scenario("quiet")
    assert "noisy-neighbour" in (refused.value.hint or "")


def test_help_and_page_name_every_shipped_scenario() -> None:
    page = (Path(__file__).parents[3] / "docs" / "lab.md").read_text(encoding="utf-8")
    for name in shipped():
        assert name in (command.help or "").replace("\n", " ")
        assert f"| `{name}` |" in page
