# SPDX-License-Identifier: Apache-2.0
"""Readings of a simulated machine: with running vGPUs, played curves, and functions of NVML that fail."""

from pathlib import Path

from tests.agent.simulated import VM, Machine
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.wire.envelope import Request, reply_from_json, reply_to_json
from vgpuctl.agent.wire.readings import HostReadings, Measured
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.hosts.readings_check import check_readings
from vgpuctl_lab.simulated.machine.curves import CURVES
from vgpuctl_lab.simulated.machine.domains import HostDevice, start
from vgpuctl_lab.simulated.machine.nvml import CODES


def read(simulated: Machine) -> HostReadings:
    """The readings of a simulated machine, as they come over the wire and are accepted."""
    reply = answer(simulated.host, Request("readings"))
    assert reply.problem is None, reply.problem
    assert reply_from_json(reply_to_json(reply)) == reply
    assert reply.readings is not None
    check_readings(reply.readings)
    return reply.readings


def gpu_of(simulated: Machine) -> Measured:
    """The measures of the machine's only card."""
    [gpu] = read(simulated).gpus
    return gpu.measured


def play(simulated: Machine, *lines: str, began_s: float = 0.0) -> None:
    """Let the machine play curves that began so many seconds ago."""
    path = simulated.files.root / CURVES.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([f"start {simulated.files.state().now() - began_s}", *lines]) + "\n")


def inject(simulated: Machine, **codes: int) -> None:
    """Let functions of the machine's NVML fail."""
    path = simulated.files.root / CODES.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name} {code}\n" for name, code in codes.items()))


def with_vgpus(folder: Path, count: int, profile: str = "A40-8Q") -> tuple[Machine, list[str]]:
    """A machine whose A40 has running vGPUs, one for each VM, and their VFs."""
    simulated = Machine(folder, "a40", with_vfs=True)
    vfs = simulated.files.state().vfs_of(simulated.card)[:count]
    for number, vf in enumerate(vfs):
        simulated.done(SetVfProfile(vf, simulated.type_id(profile)))
        start(simulated.files, vm_uuid(number), f"web-{number}", [HostDevice(function=vf)])
    return simulated, vfs


def vm_uuid(number: int) -> str:
    """The UUID of the VM of a number."""
    return f"{VM[:-1]}{number:x}"
