# SPDX-License-Identifier: Apache-2.0
"""The simulated NVML is pynvml to its caller, and its rules are the catalogue's (reference 3.3, 5.2)."""

import inspect
import re
from pathlib import Path
from random import Random

import pynvml
import pytest

from tests.agent.simulated import PF, VM, Machine
from tests.unit.lab.mig_card import Card, Refused, tables
from vgpuctl import catalog
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import CreateGpuInstance, SetMigMode, SetVirtualFunctions
from vgpuctl_lab.simulated.machine import modes, nvidia_smi
from vgpuctl_lab.simulated.machine.domains import HostDevice, start
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, ERROR_TEXTS, STRUCTS
from vgpuctl_lab.simulated.machine.state import booted

AGENT = Path(inspect.getfile(catalog)).parents[1] / "agent"


def test_constants_and_error_texts_are_pynvmls() -> None:
    assert {name: getattr(pynvml, name) for name in CONSTANTS} == CONSTANTS
    known = pynvml.NVMLError._errcode_to_string
    assert {code: known.get(code, text) for code, text in ERROR_TEXTS.items()} == ERROR_TEXTS


def test_structs_have_pynvmls_fields() -> None:
    for name, struct in STRUCTS.items():
        real = getattr(pynvml, name)
        if hasattr(real, "_fields_") and hasattr(struct, "_fields_"):
            assert [field[0] for field in real._fields_] == [field[0] for field in struct._fields_], name


def test_whatever_the_agent_asks_of_nvml_is_pynvmls_and_answered(tmp_path: Path) -> None:
    source = "".join(file.read_text() for file in AGENT.rglob("*.py"))
    asked = set(re.findall(r"library\.(\w+)", source))
    assert {"nvmlDeviceSetMigMode", "c_nvmlGpuInstance_t", "NVMLError"} <= asked
    library = Machine(tmp_path, "a40").host.nvml()
    for name in sorted(asked):
        assert hasattr(pynvml, name), name
        answer = getattr(library, name)
        if name.startswith("nvml") and name != "nvmlDeviceGetComputeRunningProcesses_v2":
            assert getattr(answer, "__name__", "") != "_missing", name


# Of the others no public text gives profile ids or places.
PLACED = [
    key
    for key, table in tables().items()
    if table.memory_slots and any(one.id is not None and one.placement_starts for one in table.profiles)
]


@pytest.mark.parametrize("key", PLACED)
def test_instances_fit_by_the_published_rule(key: str, tmp_path: Path) -> None:
    board = next(one for one in catalog.boards().values() if one.mig.table == key)
    machine = Machine(tmp_path, board.key.removeprefix("nvidia-"))
    card, state, choose = machine.card, booted(machine.files.shape), Random(key)
    assert card.mig is not None
    state.mig_modes[card.address] = (True, True)
    model = Card(tables()[key])
    for _ in range(150):
        profile = choose.choice(card.mig.profiles)
        place = choose.choice(profile.starts)
        try:
            model.create(profile.name, place)
            is_allowed = True
        except Refused:
            is_allowed = False
        if is_allowed:
            modes.create_instance(state, card, profile.profile_id, place)
        else:
            with pytest.raises(modes.Refused):
                modes.create_instance(state, card, profile.profile_id, place)
        if len(state.instances) > 2 and choose.random() < 0.5:
            gone = choose.choice(state.instances)
            modes.destroy_instance(state, card, gone)
            model.destroy(next(one.id for one in model.instances if one.start == gone.start))


def test_the_driver_places_instances_as_real_boards_do(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a100-pcie-40gb")
    machine.done(SetMigMode(PF, True))
    with machine.files.change() as state:
        seven = [modes.create_instance(state, machine.card, 19, None) for _ in range(7)]
    assert [(one.id, one.start) for one in seven] == [(13, 6), (11, 4), (12, 5), (7, 0), (8, 1), (9, 2), (10, 3)]


@pytest.mark.parametrize(("board", "keeps"), [("a100-pcie-40gb", True), ("h100-pcie", False)])
def test_a_reboot_loses_instances_and_on_hopper_the_mode(board: str, keeps: bool, tmp_path: Path) -> None:
    machine = Machine(tmp_path, board)
    profile = machine.card.mig.profiles[0].name if machine.card.mig else ""
    machine.done(SetMigMode(PF, True), CreateGpuInstance(PF, profile, None))
    machine.files.reboot()
    mig = machine.gpu().mig
    assert mig is not None and (mig.current, mig.pending, mig.instances) == (keeps, keeps, ())


def test_sensors_follow_the_vms_and_never_chance(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "l40s", with_vfs=True)
    vf = machine.gpu().vfs[0].address
    library = machine.host.nvml()
    library.nvmlInit()
    device = library.nvmlDeviceGetHandleByIndex(0)

    def readings() -> tuple[int, int, int, int]:
        return (
            library.nvmlDeviceGetUtilizationRates(device).gpu,
            library.nvmlDeviceGetPowerUsage(device),
            library.nvmlDeviceGetTemperature(device, library.NVML_TEMPERATURE_GPU),
            library.nvmlDeviceGetMemoryInfo(device).used,
        )

    idle = readings()
    assert idle[0] == 0
    machine.done(SetVfProfile(vf, machine.type_id("L40S-8Q")))
    start(machine.files, VM, "web", [HostDevice(function=vf)])
    busy = readings()
    assert all(after > before for before, after in zip(idle, busy, strict=True))
    assert busy == readings()
    [vgpu] = library.nvmlDeviceGetActiveVgpus(device)
    assert library.nvmlVgpuInstanceGetVmID(vgpu) == (VM, 1)


def test_nvidia_smi_prints_and_ends_as_captured(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a100-pcie-40gb")

    def smi(*arguments: str) -> tuple[int, str]:
        status, output, _ = nvidia_smi.run(machine.files, arguments)
        return status, output

    assert smi("-L") == (0, f"GPU 0: {machine.card.model} (UUID: {machine.card.uuid})\n")
    assert smi("-i", "9", "-L")[0] == 6
    assert smi("-i", "0", "-mig", "1") == (0, "Enabled MIG Mode for GPU 00000000:41:00.0\nAll done.\n")
    assert smi("mig", "-lgi")[0] == 2, "GPU instances are NVML's matter here"
    machine.take(SetVirtualFunctions(PF, machine.card.total_vfs))
    assert smi("-mig", "0")[0] == 19
