# SPDX-License-Identifier: Apache-2.0
"""A driver that takes its time: a call that hangs costs its GPU, and neither the others nor the answer."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.agent.measured import read
from tests.agent.simulated import PF, Machine
from vgpuctl.agent.readings import cards
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost
from vgpuctl_lab.simulated.machine.nvml import SimulatedNvml
from vgpuctl_lab.simulated.machine.nvml_session import DeviceHandle

SECOND = "0000:43:00.0"


class Hanging(SimulatedNvml):
    """An NVML of which one GPU's power, or its own start, does not come back before `release`."""

    release = threading.Event()
    hangs_at = ""

    def init(self) -> None:
        if self.hangs_at == "start":
            self.release.wait()
        super().init()

    def device_get_utilization_rates(self, device: DeviceHandle) -> SimpleNamespace:
        if device.address == self.hangs_at:
            self.release.wait()
        return super().device_get_utilization_rates(device)


class HangingHost(SimulatedHost):
    """A machine with that NVML."""

    def nvml(self) -> SimulatedNvml:
        return Hanging(self.machine)


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(cards, "LIMIT_S", 0.2)
    Hanging.release = threading.Event()
    simulated = Machine(tmp_path, "a40*2", host=HangingHost)
    yield simulated
    Hanging.release.set()
    for thread in simulated.host.hanging.values():
        thread.join()
    Hanging.hangs_at = ""


def test_one_gpu_that_hangs_leaves_the_others(hanging: Machine) -> None:
    Hanging.hangs_at = PF
    readings = read(hanging)
    stuck, well = readings.gpus
    assert (stuck.address, well.address) == (PF, SECOND)
    assert stuck.measured.why_missing("power_watts") == "not-readable: NVML does not show the GPU"
    assert well.measured.get("temperature_celsius") == 34
    assert "GPU 0 did not answer within 0 s: a call of the driver hangs" in readings.unread


def test_a_gpu_that_still_hangs_is_not_asked_again_until_it_answers(hanging: Machine) -> None:
    Hanging.hangs_at = PF
    read(hanging)
    threads = threading.active_count()
    assert "GPU 0 is left out: an earlier call of the driver has not returned" in read(hanging).unread
    assert threading.active_count() == threads
    Hanging.hangs_at = ""
    Hanging.release.set()
    hanging.host.hanging["GPU 0"].join()
    readings = read(hanging)
    assert readings.unread == ()
    assert [gpu.measured.get("temperature_celsius") for gpu in readings.gpus] == [34, 34]


def test_an_nvml_that_does_not_start_leaves_the_host(hanging: Machine) -> None:
    Hanging.hangs_at = "start"
    readings = read(hanging)
    assert [gpu.measured.get("power_watts") for gpu in readings.gpus] == [None, None]
    assert readings.measured.get("memory_total_bytes") == 512 << 30
    assert "NVML did not answer within 0 s: a call of the driver hangs" in readings.unread


def test_all_gpus_together_have_a_limit(hanging: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "LIMIT_OF_ALL_S", 0.0)
    readings = read(hanging)
    assert "NVML is left out: the other GPUs took 0 s" in readings.unread
    assert len(readings.gpus) == 2
