# SPDX-License-Identifier: Apache-2.0
"""The agent reads the same from both NVMLs of the lab: the emulated hosts' library, and the simulated hosts' own.

The library is the real one over files as the kernel module writes them; their text is made from the simulated state.
"""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.agent.simulated import Machine
from tests.lab.nvml_fixtures import VERSION, ModuleDouble, module, nvml, nvml_library
from vgpuctl.agent.facts import nvml_gpus
from vgpuctl.agent.facts.nvml_gpus import NvmlGpu
from vgpuctl.agent.nvml import Nvml
from vgpuctl.agent.wire.steps import CreateGpuInstance, SetMigMode, SetVgpuScheduler, Step
from vgpuctl_lab.card_table import card_table
from vgpuctl_lab.cards import parse_host
from vgpuctl_lab.simulated.machine import modes
from vgpuctl_lab.simulated.machine.nvml import CODES, SimulatedNvml
from vgpuctl_lab.simulated.machine.shape import CardShape

__all__ = ["module", "nvml", "nvml_library"]

PF, EMULATED = "0000:41:00.0", "0000:01:00.0"
MIG = (SetMigMode(PF, True),)
CASES: dict[str, tuple[str, tuple[Step, ...]]] = {
    "time-sliced": ("a40", ()),
    "without-sriov": ("t4", ()),
    "scheduler": ("l40s", (SetVgpuScheduler(PF, "equal-share", 4000),)),
    "mig-off": ("a100-pcie-40gb", ()),
    "mig-on": ("h100-pcie", MIG),
    "instances": (
        "a100-pcie-40gb",
        (
            *MIG,
            CreateGpuInstance(PF, "1g.5gb", None, 2, compute_instance=True),
            CreateGpuInstance(PF, "3g.20gb", 0),
        ),
    ),
    "scheduler-of-a-card-without-vms": ("l40s", (SetVgpuScheduler(PF, "fixed-share"),)),
    "several-in-an-instance": (
        "rtx-pro-6000-blackwell-server",
        (*MIG, CreateGpuInstance(PF, "2g.48gb+gfx", 6)),
    ),
}


def state_text(machine: Machine) -> str:
    """The kernel module's text for the simulated cards' state."""
    return "".join(_card_text(machine, card) for card in machine.files.shape.cards)


def _card_text(machine: Machine, card: CardShape) -> str:
    state, address = machine.files.state(), f"0000:{card.number + 1:02x}:00.0"
    current, pending = (int(one) for one in state.mig_mode(card))
    scheduler = modes.scheduler(state, card)
    lines = [
        f"card {address} driver=nvidia interface={card.interface} usage=0 unbind_lock=0 vgpus=0"
        f" framebuffer={card.memory_mib} vgpu_framebuffer=0 uuid={card.uuid} vfs=0 mig={current} mig_pending={pending}"
        f" hetero=0 sched_policy={scheduler.policy} sched_arr={scheduler.arr}"
        f" sched_slice_us={scheduler.slice_ns // 1000} sched_frequency=480"
        f" fallen={state.fault(card, 'fallen')} ecc_errors={state.fault(card, 'ecc')} retired_pages=0"
        " last_xid=0"
    ]
    for one in state.instances_of(card):
        place = f"profile={one.profile_id} start={one.start} size={one.size} in_use=0"
        lines.append(f"gi {address} id={one.id} {place} hetero=0")
        lines += [
            f"ci {address} gi={one.id} id={each.id} profile={each.profile_id} start={each.start} size={each.size}"
            " in_use=0"
            for each in one.computes
        ]
    return "".join(f"{line}\n" for line in lines)


def use_driver_of(machine: Machine, module: ModuleDouble) -> None:
    """Let the library have the driver of the simulated host."""
    (module.folder / "version").write_text(VERSION.replace("550.127.06", machine.files.shape.nvidia_driver))


def read(library: Any) -> NvmlGpu:
    """The one card as the agent reads it, without what is the host's own."""
    library.nvmlInit()
    with Nvml(library) as opened:
        gpus, problems = nvml_gpus.read(opened)
    assert problems == []
    (gpu,) = gpus.values()
    return dataclasses.replace(gpu, uuid=None, types=tuple(sorted(gpu.types, key=lambda one: int(one.type_id))))


@pytest.mark.parametrize("name", CASES)
def test_both_libraries_tell_the_agent_the_same(name: str, nvml: Any, module: ModuleDouble, tmp_path: Path) -> None:
    board, steps = CASES[name]
    machine = Machine(tmp_path / "simulated", board)
    if steps:
        machine.done(*steps)
    module.write(cards=card_table(parse_host(f"gpu1={board}")), state=state_text(machine))
    use_driver_of(machine, module)
    assert read(SimulatedNvml(machine.files)) == read(nvml)


SETTINGS: dict[str, tuple[str, tuple[tuple[Any, ...], ...]]] = {
    "power": ("a40", (("SetPowerManagementLimit", 150_000), ("SetPowerManagementLimit", 149_999))),
    "default-power": ("a40", (("SetPowerManagementLimit", 200_000), ("SetPowerManagementLimit", 300_000))),
    "too-much-power": ("a40", (("SetPowerManagementLimit", 300_001),)),
    "clocks": ("a40", (("SetGpuLockedClocks", 1200, 1695),)),
    "no-clock": ("a40", (("SetGpuLockedClocks", 1200, 1700), ("SetGpuLockedClocks", 1695, 1200))),
    "unlocked": ("a40", (("SetGpuLockedClocks", 1200, 1200), ("ResetGpuLockedClocks",))),
    "memory": ("a40", (("SetMemoryLockedClocks", 405, 7251), ("SetMemoryLockedClocks", 405, 500))),
    "no-memory": ("a40", (("SetMemoryLockedClocks", 7251, 405), ("SetMemoryLockedClocks", 0, 0))),
    "memory-unlocked": ("a40", (("SetMemoryLockedClocks", 405, 405), ("ResetMemoryLockedClocks",))),
    "both-clocks": ("a40", (("SetMemoryLockedClocks", 405, 405), ("SetGpuLockedClocks", 1200, 1695))),
    "memory-of-turing": ("t4", (("SetMemoryLockedClocks", 405, 405), ("ResetMemoryLockedClocks",))),
    "ecc": ("a40", (("SetEccMode", 0), ("SetEccMode", 7))),
    "ecc-called-off": ("a40", (("SetEccMode", 0), ("SetEccMode", 1))),
    "compute-mode": ("a40", (("SetComputeMode", 3), ("SetComputeMode", 1), ("SetComputeMode", 4))),
    "all": ("a40", (("SetPowerManagementLimit", 200_000), ("SetEccMode", 0), ("SetComputeMode", 2))),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_both_libraries_take_and_refuse_the_same_settings(
    name: str, nvml: Any, module: ModuleDouble, tmp_path: Path
) -> None:
    board, calls = SETTINGS[name]
    machine = Machine(tmp_path / "simulated", board)
    module.write(cards=card_table(parse_host(f"gpu1={board}")), state=state_text(machine))
    use_driver_of(machine, module)
    told: list[list[int]] = []
    for library in (SimulatedNvml(machine.files), nvml):
        library.nvmlInit()
        told.append([])
        for function, *values in calls:
            device = library.nvmlDeviceGetHandleByIndex(0)
            try:
                getattr(library, f"nvmlDevice{function}")(device, *values)
                told[-1].append(0)
            except library.NVMLError as error:
                told[-1].append(error.value)
        library.nvmlShutdown()
    assert told[0] == told[1]
    assert read(SimulatedNvml(machine.files)) == read(nvml)


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetSupportedVgpus",
        "nvmlVgpuTypeGetName",
        "nvmlVgpuTypeGetFramebufferSize",
        "nvmlDeviceGetVgpuSchedulerState",
        "nvmlDeviceGetVgpuMetadata",
        "nvmlDeviceGetVgpuCapabilities",
        "nvmlVgpuTypeGetCapabilities",
    ],
)
def test_both_libraries_fail_where_they_are_made_to(
    function: str, nvml: Any, module: ModuleDouble, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "simulated", "a100-pcie-40gb")
    module.write(cards=card_table(parse_host("gpu1=a100-pcie-40gb")), state=state_text(machine))
    use_driver_of(machine, module)
    ours = machine.files.root / CODES.lstrip("/")
    ours.parent.mkdir(parents=True)
    for file in (ours, module.folder / "nvml_codes"):
        file.write_text(f"{function} 999\n")
    found = read(SimulatedNvml(machine.files))
    assert found == read(nvml)
    assert found.migration is None or found.migration.vgpus == ()
    parts = [one.problems for one in (found.migration, found.abilities) if one is not None]
    assert any("(NVML 999)" in one for one in (*found.problems, *found.notes, *itertools.chain(*parts)))
