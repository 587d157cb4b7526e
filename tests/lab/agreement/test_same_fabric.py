# SPDX-License-Identifier: Apache-2.0
"""Both Fabric Managers of the lab answer the same calls with the same: the library of emulated hosts, and the module of
simulated ones. The calls are random, from fixed seeds."""

import ctypes
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.agent.simulated import Machine
from tests.lab.agreement.test_same_nvml import state_text, use_driver_of
from tests.lab.nvml_fixtures import FabricFiles, ModuleDouble, module, nvfm, nvfm_library, nvml, nvml_library
from tests.lab.test_fabric_library import shape_of, versioned
from vgpuctl.agent.fabric_manager import (
    CONFIG,
    ActivatedList,
    ConnectParameters,
    FailedDevices,
    PartitionList,
    PciDevice,
)
from vgpuctl_lab.card_links import configured_mode, fabric_config
from vgpuctl_lab.card_table import card_table
from vgpuctl_lab.simulated.machine import fabric_manager
from vgpuctl_lab.simulated.machine.nvml import SimulatedNvml

__all__ = ["module", "nvfm", "nvfm_library", "nvml", "nvml_library"]

STEPS, VFS, FAILED, RESTART_S, START_S = 200, 2, 3, 60, 40
# A board, how many GPUs of it, and the seed.
CASES = (
    ("h100-sxm5", 8, 0),
    ("b200", 8, 0),
    ("a100-sxm4-40gb", 8, 1),
    ("a100-sxm4-40gb", 16, 0),
    ("a100-sxm4-40gb", 5, 0),
)


class World(Protocol):
    """One kind of host. library: its libnvfm. nvml: its NVML, opened."""

    library: Any
    nvml: Any

    def address(self, gpu: int) -> str: ...
    def vf(self, gpu: int, number: int) -> str: ...
    def configure(self, text: str) -> None: ...
    def pass_time(self, seconds: int) -> None: ...
    def stop(self) -> None: ...
    def start(self, *, keeps_partitions: bool, starting_s: int) -> None: ...


class Emulated:
    def __init__(self, library: Any, nvml: Any, files: FabricFiles, gpus: int) -> None:
        self.library, self.nvml, self.files = library, nvml, files
        for gpu in range(gpus):
            for number in range(VFS):
                files.add_vf(self.address(gpu), self.vf(gpu, number))

    def address(self, gpu: int) -> str:
        return f"0000:{gpu + 1:02x}:00.0"

    def vf(self, gpu: int, number: int) -> str:
        return f"0000:{gpu + 1:02x}:{number + 8 >> 3:02x}.{number + 8 & 7}"

    def configure(self, text: str) -> None:
        self.files.configure(text)

    def pass_time(self, seconds: int) -> None:
        self.files.pass_time(seconds)

    def stop(self) -> None:
        self._end_window()
        self.files.let(stopped=1)

    def start(self, *, keeps_partitions: bool, starting_s: int) -> None:
        self._end_window()
        now = int(time.time())
        self.files.let(
            keeps_partitions=keeps_partitions,
            starting_until=now + starting_s if starting_s else 0,
            window_ends=now + RESTART_S if keeps_partitions else 0,
            restarted=int(keeps_partitions),
        )

    def _end_window(self) -> None:
        """What the library makes of a window that has passed."""
        ends = [
            int(word[12:]) for line in self.files.lines() for word in line.split() if word.startswith("window_ends=")
        ]
        if ends and 0 < ends[0] <= time.time():
            self.files.let(keeps_partitions=False, stopped=1)


class Simulated:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.library, self.nvml = machine.host.nvfm(), SimulatedNvml(machine.files)
        self.cards = machine.files.shape.cards

    def address(self, gpu: int) -> str:
        return self.cards[gpu].address

    def vf(self, gpu: int, number: int) -> str:
        return self.cards[gpu].vf_address(number)

    def configure(self, text: str) -> None:
        (self.machine.files.root / CONFIG.lstrip("/")).write_text(text)
        with self.machine.files.change() as state:
            state.fabric.mode = configured_mode(self.machine.files.root)  # an emulated host has it at once

    def pass_time(self, seconds: int) -> None:
        with self.machine.files.change() as state:
            state.skipped_s += seconds

    def stop(self) -> None:
        with self.machine.files.change() as state:
            fabric_manager.control(self.machine.files, state, "stop")

    def start(self, *, keeps_partitions: bool, starting_s: int) -> None:
        with self.machine.files.change() as state:
            fabric_manager.settle(state)
            fabric_manager.start(self.machine.files, state, keeps_partitions=keeps_partitions, starting_s=starting_s)


def pci_device(address: str) -> PciDevice:
    domain, bus, rest = address.split(":")
    device, function = rest.split(".")
    return PciDevice(*(int(part, 16) for part in (domain, bus, device, function)))


def connect(world: World, handle: ctypes.c_void_p) -> int:
    asked = versioned(ConnectParameters, 2)
    asked.addressInfo, asked.addressType = b"127.0.0.1", 1
    return int(world.library.fmConnect(ctypes.byref(asked), ctypes.byref(handle)))


def listed(world: World, handle: ctypes.c_void_p) -> list[object]:
    """The code and the list; of a GPU's names whether they are its own."""
    found = versioned(PartitionList)
    code = world.library.fmGetSupportedFabricPartitions(handle, ctypes.byref(found))
    told: list[object] = [code, found.numPartitions, found.maxNumPartitions]
    for one in found.partitionInfo[: found.numPartitions]:
        told += [one.partitionId, one.isActive, one.numGpus]
        for gpu in one.gpuInfo[: one.numGpus]:
            address = f"0000{world.address(gpu.physicalId - 1).upper()}".encode() if gpu.pciBusId else b""
            told += [gpu.physicalId, gpu.pciBusId == address, bool(gpu.uuid)]
            told += [gpu.numNvLinksAvailable, gpu.maxNumNvLinks, gpu.nvlinkLineRateMBps]
    return told


def failed(world: World, handle: ctypes.c_void_p) -> list[int]:
    found = versioned(FailedDevices)
    return [world.library.fmGetNvlinkFailedDevices(handle, ctypes.byref(found)), found.numGpus]


class _Unsupported(ctypes.Structure):
    """fmUnsupportedFabricPartitionInfo_t."""

    _fields_ = [("partitionId", ctypes.c_uint), ("numGpus", ctypes.c_uint), ("gpuPhysicalIds", ctypes.c_uint * 16)]


class _UnsupportedList(ctypes.Structure):
    """fmUnsupportedFabricPartitionList_v1, which the agent does not ask for."""

    _fields_ = [("version", ctypes.c_uint), ("numPartitions", ctypes.c_uint), ("partitionInfo", _Unsupported * 64)]


def unsupported(world: World, handle: ctypes.c_void_p) -> list[int]:
    found = versioned(_UnsupportedList)
    return [world.library.fmGetUnsupportedFabricPartitions(handle, ctypes.byref(found)), *bytes(found)]


def activated(world: World, handle: ctypes.c_void_p, numbers: Sequence[int]) -> int:
    told = versioned(ActivatedList)
    told.numPartitions, told.partitionIds[: len(numbers)] = len(numbers), numbers
    return int(world.library.fmSetActivatedFabricPartitions(handle, ctypes.byref(told)))


def with_vfs(world: World, handle: ctypes.c_void_p, number: int, wanted: Sequence[tuple[int, int]]) -> int:
    vfs = (PciDevice * len(wanted))(*(pci_device(world.vf(*one)) for one in wanted))
    return int(world.library.fmActivateFabricPartitionWithVFs(handle, number, vfs, len(wanted)))


def fabric(world: World, gpus: int) -> list[object]:
    """NVML's links and state of the fabric of each GPU, the error's code where it tells none."""
    library, found = world.nvml, []
    for gpu in range(gpus):
        info, device = library.c_nvmlGpuFabricInfo_t(), library.nvmlDeviceGetHandleByIndex(gpu)
        found += [int(library.nvmlDeviceGetNvLinkState(device, link)) for link in range(FAILED + 1)]
        try:
            library.nvmlDeviceGetGpuFabricInfo(device, ctypes.byref(info))
            found.append(int(info.state) & 0xFF)
        except library.NVMLError as error:
            found.append(-int(error.value))
    return list(found)


def step(chance: random.Random, mode: int, gpus: int) -> tuple[str, Any]:
    """One thing to do; most change partitions."""
    number = chance.choice((chance.randrange(36), chance.randrange(16), chance.randrange(8)))
    wanted = [(chance.randrange(gpus), chance.choice((0, 0, 0, 1, 40))) for _ in range(chance.choice((1, 1, 1, 2)))]
    if mode == 2 and chance.random() < 0.7:
        # What the partition is of on one board or another, so that many succeed.
        first = chance.randrange(gpus)
        wanted, number = [(first, 0)], first + chance.choice((7, 8, 19))
    word = chance.choices(
        (
            "activate",
            "vfs",
            "deactivate",
            "list",
            "set",
            "failed",
            "time",
            "restart",
            "anew",
            "stop",
            "mode",
            "connect",
        ),
        (30 if mode == 1 else 4, 30 if mode == 2 else 4, 16, 10, 8, 3, 6, 2, 1, 1, 2, 3),
    )[0]
    values = {
        "activate": number,
        "vfs": (number, wanted),
        "deactivate": number,
        "set": [chance.randrange(16) for _ in range(chance.choice((0, 0, 0, 1, 2)))],
        "time": chance.choice((25, 70)),
        "anew": chance.choice((0, START_S)),
        "mode": chance.choice((0, 1, 1, 2, 2)),
    }
    return word, values.get(word)


def done(world: World, handle: ctypes.c_void_p, word: str, value: Any, gpus: int) -> list[object]:
    library = world.library
    if word == "activate":
        return [library.fmActivateFabricPartition(handle, value)]
    if word == "vfs":
        return [with_vfs(world, handle, *value)]
    if word == "deactivate":
        return [library.fmDeactivateFabricPartition(handle, value)]
    if word == "list":
        return [*listed(world, handle), *unsupported(world, handle), *fabric(world, gpus)]
    if word == "set":
        return [activated(world, handle, value)]
    if word == "failed":
        return list(failed(world, handle))
    if word == "connect":
        return [connect(world, ctypes.c_void_p())]
    if word == "time":
        world.pass_time(value)
    elif word == "mode":
        world.configure(fabric_config(value))
    elif word == "stop":
        world.stop()
    else:
        world.start(keeps_partitions=word == "restart", starting_s=value or 0)
    return []


@pytest.mark.parametrize(("board", "gpus", "seed"), CASES)
def test_the_same_calls_have_the_same_answers(
    board: str, gpus: int, seed: int, nvfm: Any, nvml: Any, module: ModuleDouble, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    mode = chance.choice((1, 2))
    machine = Machine(tmp_path / "simulated", f"{board}~fabric-shared*{gpus}", with_vfs=True)
    module.write(cards=card_table(shape_of(board, gpus)), state=state_text(machine))
    use_driver_of(machine, module)
    with machine.files.change() as state:
        state.vf_counts = {card.address: VFS for card in machine.files.shape.cards}
    worlds: tuple[World, ...] = (Emulated(nvfm, nvml, FabricFiles(module.folder), gpus), Simulated(machine))
    FabricFiles(module.folder).fail_links("0000:01:00.0", FAILED)
    machine.begin(fabric_manager.FAILED_LINKS, FAILED)
    handles = [ctypes.c_void_p() for _ in worlds]
    for world, handle in zip(worlds, handles, strict=True):
        world.nvml.nvmlInit()
        world.configure(fabric_config(mode))
        assert world.library.fmLibInit() == connect(world, handle) == 0
    codes: set[Any] = set()
    for count in range(STEPS):
        word, value = step(chance, mode, gpus)
        emulated, simulated = (done(*one, word, value, gpus) for one in zip(worlds, handles, strict=True))
        assert emulated == simulated, (seed, count, word, value)
        mode = value if word == "mode" else mode
        codes |= set(emulated[:1])
        if emulated[:1] == [-9]:
            # It would stay so.
            for world in worlds:
                world.start(keeps_partitions=False, starting_s=0)
    assert {0, -1, -3, -4, -8, -9, -17, -24} <= codes, sorted(codes)
