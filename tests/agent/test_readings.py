# SPDX-License-Identifier: Apache-2.0
"""Readings: each measure as the machine has it, and a reason for each that is missing."""

from pathlib import Path

from tests.agent.simulated import PF, Machine
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.wire.envelope import Request, reply_from_json, reply_to_json
from vgpuctl.agent.wire.readings import HostReadings


def read(simulated: Machine) -> HostReadings:
    """The readings of a simulated machine, as they come over the wire."""
    reply = answer(simulated.host, Request("readings"))
    assert reply_from_json(reply_to_json(reply)) == reply
    assert reply.readings is not None
    return reply.readings


def test_an_idle_card_has_its_values(tmp_path: Path) -> None:
    readings = read(Machine(tmp_path, "a40"))
    [gpu] = readings.gpus
    assert (gpu.address, gpu.model, gpu.driver) == (PF, "NVIDIA A40", "nvidia")
    assert gpu.measured.get("utilization_ratio") == 0
    assert gpu.measured.get("temperature_celsius") == 34
    assert readings.vgpus == ()
