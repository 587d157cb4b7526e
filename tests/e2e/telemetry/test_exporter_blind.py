# SPDX-License-Identifier: Apache-2.0
"""serve exporter: hosts that vanish, clocks, and an unreadable store. It exports the failure and keeps serving."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.telemetry.running_exporter import Series, parse, values
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.serve_exporter import Exporter
from vgpuctl.wiring import Settings, open_services
from vgpuctl_lab.simulated.layout import simulated_folder


class Clock:
    """The store's clock, which the test moves."""

    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """An exporter whose clock is the test's."""

    def __init__(self, services: Services, clock: Clock, home: Path, said: list[str]) -> None:
        self.clock, self.said, self.home = clock, said, home
        self.exporter = Exporter(services, interval_s=15, history=home / "history")

    def series(self) -> Series:
        """The page as it is now."""
        return parse(self.exporter.metrics("")[0].decode())


@pytest.fixture
def scene(fleet: lab.LabFolder, tmp_path: Path) -> Iterator[Scene]:
    """An exporter that has read four hosts once."""
    clock, said = Clock(), list[str]()
    settings = Settings([str(simulated_folder(fleet).inventory)], f"sqlite:///{tmp_path}/store.db")
    with open_services(settings, said.append, clock=clock) as services:
        made = Scene(services, clock, tmp_path, said)
        made.exporter.read_once()
        yield made


def test_the_series_of_a_host_end_with_its_last_reading(scene: Scene) -> None:
    assert len(values(scene.series(), "vgpuctl_gpu_power_watts")) == 4
    scene.clock.now += 59
    assert len(values(scene.series(), "vgpuctl_gpu_power_watts")) == 4
    scene.clock.now += 2
    series = scene.series()
    assert values(series, "vgpuctl_gpu_power_watts") == []
    assert set(values(series, "vgpuctl_snapshot_age_seconds")) == {61}
    probe = parse(scene.exporter.host_metrics("sim-001", "")[0].decode())
    assert values(probe, "probe_success") == [0]


def test_a_host_with_another_time_is_measured_by_ours(scene: Scene) -> None:
    series = scene.series()
    skews = values(series, "vgpuctl_host_clock_skew_seconds")
    assert len(skews) == 4
    assert all(abs(one) > 1_000_000 for one in skews), "the hosts' clocks are those of this machine, not of the test"
    assert set(values(series, "vgpuctl_snapshot_age_seconds")) == {0}


def test_a_store_that_cannot_be_read_keeps_what_was_read_with_its_age(scene: Scene) -> None:
    assert values(scene.series(), "vgpuctl_store_up") == [1]
    states = len([one for one in scene.series() if one[0] == "vgpuctl_host_state"])
    with contextlib.closing(sqlite3.connect(scene.home / "store.db")) as other:
        other.execute("DROP TABLE leases")
    scene.clock.now += 15
    scene.exporter.read_once()
    series = scene.series()
    assert values(series, "vgpuctl_store_up") == [0]
    assert values(series, "vgpuctl_store_age_seconds") == [15]
    assert len([one for one in series if one[0] == "vgpuctl_host_state"]) == states > 0
    assert len(values(series, "vgpuctl_gpu_power_watts")) == 4
    assert [one for one in scene.said if one.startswith("warning: the store cannot be read: ")]
