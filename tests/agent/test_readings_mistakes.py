# SPDX-License-Identifier: Apache-2.0
"""Answers that no code expects, from each part of a host: they hide that part, and the others are still read."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.measured import read, vm_uuid
from tests.agent.simulated import PF, Machine
from vgpuctl.agent.host import Completed
from vgpuctl.agent.readings.domains import FOLDER
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl_lab.simulated.machine.domains import HostDevice, start
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost
from vgpuctl_lab.simulated.machine.nvml import SimulatedNvml
from vgpuctl_lab.simulated.machine.nvml_session import DeviceHandle

SECOND = "0000:43:00.0"
MISTAKE = "cannot be read, by a mistake in vgpuctl's agent: "


class OddNvml(SimulatedNvml):
    """An NVML whose second GPU tells a text where a number belongs."""

    def device_get_power_usage(self, device: DeviceHandle) -> int:
        return "hot" * 1000 if device.address == SECOND else super().device_get_power_usage(device)  # type: ignore[return-value]


class OddHost(SimulatedHost):
    """A machine of which one part gives an answer that no code expects. odd: the part."""

    odd = ""

    def nvml(self) -> SimulatedNvml:
        return OddNvml(self.machine) if self.odd == "gpu" else super().nvml()

    def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
        if self.odd == "vms" and argv[0] == "virsh":
            b"\xff".decode()
        return super().run(argv, timeout_s=timeout_s, changes=changes)

    def clock_ticks(self) -> int:
        return 0 if self.odd == "host" else super().clock_ticks()

    def listdir_optional(self, path: str) -> list[str] | None:
        return [None] if (self.odd, path) == ("domains", FOLDER) else super().listdir_optional(path)  # type: ignore[list-item]


def running(folder: Path, odd: str) -> Machine:
    """A machine with two GPUs and a VM on the first; one part is odd."""
    simulated = Machine(folder, "a40*2", with_vfs=True, host=type("Odd", (OddHost,), {"odd": odd}))
    vf = simulated.files.state().vfs_of(simulated.card)[0]
    simulated.done(SetVfProfile(vf, simulated.type_id("A40-8Q")))
    start(simulated.files, vm_uuid(0), "web-0", [HostDevice(function=vf)])
    return simulated


@pytest.mark.parametrize(
    ("odd", "what", "why"),
    [
        ("gpu", "GPU 1", "TypeError: unsupported operand"),
        ("vms", "the VMs", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff"),
        ("host", "the host itself", "ZeroDivisionError: division by zero"),
        ("domains", "libvirt's files of running VMs", "AttributeError: 'NoneType' object has no attribute"),
    ],
)
def test_a_mistake_hides_its_own_part_alone(odd: str, what: str, why: str, tmp_path: Path) -> None:
    simulated = running(tmp_path, odd)
    readings = read(simulated)
    told = [one for one in readings.unread if MISTAKE in one]
    assert [one.startswith(f"{what} {MISTAKE}{why}") for one in told] == [True], readings.unread
    assert len(told[0]) < 500
    assert [one.address for one in readings.gpus] == [PF, SECOND]
    first, second = (one.measured for one in readings.gpus)
    assert first.get("power_watts") is not None
    assert (second.get("power_watts") is None) == (odd == "gpu")
    assert [one.vm_uuid for one in readings.vgpus] == [vm_uuid(0)]
    assert [one.uuid for one in readings.vms] == ([] if odd == "vms" else [vm_uuid(0)])
    assert (readings.measured.get("memory_total_bytes") is None) == (odd == "host")


@pytest.mark.parametrize(
    "kept", ["[" * 100_000, '{"boot_id": "%s", "last": 1e999, "counts": {}, "driver_loaded_at_s": 1}']
)
def test_kept_counts_of_xids_that_are_nonsense_are_counted_anew(kept: str, tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    simulated.begin("xid", 31)
    boot_id = read(simulated).boot_id
    [place] = simulated.files.root.rglob("xids.json")
    place.write_text(kept.replace("%s", boot_id))
    readings = read(simulated)
    assert readings.unread == ()
    assert readings.gpus[0].measured.get("xid", "31", "restart-app") == 1


@pytest.mark.parametrize("encoding", ["bogus", "utf-7"])
def test_a_file_of_libvirt_in_an_unknown_encoding_is_said_and_the_others_are_read(
    encoding: str, tmp_path: Path
) -> None:
    simulated = running(tmp_path, "")
    path = simulated.files.root / FOLDER.lstrip("/") / "odd.xml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'<?xml version="1.0" encoding="{encoding}"?><domstatus/>')
    readings = read(simulated)
    assert [one.partition(":")[0] for one in readings.unread] == [f"{FOLDER}/odd.xml cannot be understood"]
    assert [one.uuid for one in readings.vms] == [vm_uuid(0)]
