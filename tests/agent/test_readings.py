# SPDX-License-Identifier: Apache-2.0
"""Readings: each measure as the machine has it, and a reason for each that is missing."""

from pathlib import Path

from tests.agent.simulated import PF, VM, Machine
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.wire.envelope import Request, reply_from_json, reply_to_json
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl_lab.simulated.machine.curves import CURVES
from vgpuctl_lab.simulated.machine.domains import HostDevice, start


def read(simulated: Machine) -> HostReadings:
    """The readings of a simulated machine, as they come over the wire."""
    reply = answer(simulated.host, Request("readings"))
    assert reply_from_json(reply_to_json(reply)) == reply
    assert reply.readings is not None
    return reply.readings


def play(simulated: Machine, *lines: str) -> None:
    """Let the machine play curves from now on."""
    path = simulated.files.root / CURVES.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([f"start {simulated.files.state().now()}", *lines]) + "\n")


def with_vgpus(folder: Path, count: int) -> tuple[Machine, list[str]]:
    """A machine whose A40 has running vGPUs A40-8Q, one of each VM, and their VFs."""
    simulated = Machine(folder, "a40", with_vfs=True)
    vfs = [vf.address for vf in simulated.gpu().vfs[:count]]
    for number, vf in enumerate(vfs):
        simulated.done(SetVfProfile(vf, simulated.type_id("A40-8Q")))
        start(simulated.files, vm_uuid(number), f"web-{number}", [HostDevice(function=vf)])
    return simulated, vfs


def vm_uuid(number: int) -> str:
    """The UUID of the VM of a number."""
    return f"{VM[:-1]}{number:x}"


def test_an_idle_card_has_its_values(tmp_path: Path) -> None:
    readings = read(Machine(tmp_path, "a40"))
    [gpu] = readings.gpus
    assert (gpu.address, gpu.model, gpu.driver) == (PF, "NVIDIA A40", "nvidia")
    assert gpu.measured.get("utilization_ratio") == 0
    assert gpu.measured.get("temperature_celsius") == 34
    assert readings.vgpus == ()


def test_a_vgpu_has_its_use_of_the_gpu_and_of_its_promise(tmp_path: Path) -> None:
    simulated, vfs = with_vgpus(tmp_path, 2)
    play(simulated, f"vgpu:{vfs[0]} utilization_ratio 0 0:0.5", f"vgpu:{vfs[1]} utilization_ratio 0 0:0.1")
    first, second = (one.measured for one in read(simulated).vgpus)
    assert (first.get("utilization_ratio"), second.get("utilization_ratio")) == (0.5, 0.1)
    assert first.get("promised_ratio") == 1 / 6
    assert first.get("share_utilization_ratio") == 0.5 * 6
    assert first.get("steal_ratio") == second.get("steal_ratio") == 0
    assert first.label("license_state") == "licensed"
