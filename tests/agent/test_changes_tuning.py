# SPDX-License-Identifier: Apache-2.0
"""Power limit, clocks, ECC and compute mode: done, done again, refused, lost and kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.simulated import PF, Machine
from vgpuctl.agent.changes import boot
from vgpuctl.agent.facts import boot as boot_facts
from vgpuctl.agent.facts import clock_notes
from vgpuctl.agent.wire import boot as wire
from vgpuctl.agent.wire.steps import BindDriver, CreateGpuInstance, SetMigMode, SetVirtualFunctions, Step
from vgpuctl.agent.wire.tuning import (
    UNLOCKED,
    ClockRun,
    GpuTuning,
    KeepPowerLimit,
    SetComputeMode,
    SetEccMode,
    SetGpuClocks,
    SetMemoryClocks,
    SetPowerLimit,
    clocks_in_words,
    runs_of,
)
from vgpuctl_lab.simulated.machine.nvml import CODES

LIMIT = SetPowerLimit(PF, 200_000)
CLOCKS = SetGpuClocks(PF, (1200, 1695))
MEMORY = SetMemoryClocks(PF, (405, 405))
STEPS: dict[str, tuple[tuple[Step, ...], Step, tuple[str, str]]] = {
    "power": ((), LIMIT, ("300 W", "200 W")),
    "power-back": ((LIMIT,), SetPowerLimit(PF, None), ("200 W", "300 W")),
    "clocks": ((), CLOCKS, ("unknown", "1200-1695 MHz")),
    "one-clock": ((CLOCKS,), SetGpuClocks(PF, (1500, 1500)), ("1200-1695 MHz", "1500 MHz")),
    "clocks-back": ((CLOCKS,), SetGpuClocks(PF, UNLOCKED), ("1200-1695 MHz", "not locked")),
    "memory": ((CLOCKS,), MEMORY, ("unknown", "405 MHz")),
    "memory-back": ((MEMORY,), SetMemoryClocks(PF, UNLOCKED), ("405 MHz", "not locked")),
    "ecc": ((), SetEccMode(PF, False), ("enabled", "enabled, disabled pending")),
    "ecc-back": ((SetEccMode(PF, False),), SetEccMode(PF, True), ("enabled, disabled pending", "enabled")),
    "compute-mode": ((), SetComputeMode(PF, "exclusive-process"), ("default", "exclusive-process")),
}


def tuning(machine: Machine) -> GpuTuning:
    found = machine.gpu().tuning
    assert found is not None
    return found


@pytest.mark.parametrize("name", STEPS)
def test_a_second_run_writes_nothing_and_a_dry_run_foresees_the_first(name: str, tmp_path: Path) -> None:
    before, step, words = STEPS[name]
    machine = Machine(tmp_path, "a40")
    if before:
        machine.done(*before)
    dry = machine.take(step, dry_run=True)
    first = machine.take(step)
    assert first.problem is None
    assert (first.changes[0].before, first.changes[0].after, first.changes[0].changed) == (*words, True)
    assert dry.changes == first.changes
    second = machine.take(step)
    assert not second.changes[0].changed
    assert second.changes[0].after == words[1]
    assert second.writes == first.writes


REFUSED: dict[str, tuple[str, Step, str, str]] = {
    "too-little": ("a40", SetPowerLimit(PF, 149_999), "setting-refused", "149.999 W is outside what the board takes"),
    "too-much": ("a40", SetPowerLimit(PF, 300_001), "setting-refused", "150 W to 300 W"),
    "between-two-clocks": ("a40", SetGpuClocks(PF, (1203, 1695)), "setting-refused", "nearest: 1200 and 1215"),
    "above": ("a40", SetGpuClocks(PF, (1200, 2400)), "setting-refused", "210 to 1740 MHz; nearest: 1740"),
    "below": ("a40", SetGpuClocks(PF, (5, 1200)), "setting-refused", "nearest: 210"),
    "upside-down": ("a40", SetGpuClocks(PF, (1500, 1200)), "setting-refused", "1500-1200 is no range"),
    "negative": ("a40", SetGpuClocks(PF, (-15, 1200)), "setting-refused", "-15-1200 is no range"),
    "no-memory-clock": ("a40", SetMemoryClocks(PF, (405, 7000)), "setting-refused", "7251 MHz; nearest: 7251 and 405"),
    "memory-upside-down": ("a40", SetMemoryClocks(PF, (7251, 405)), "setting-refused", "no range of memory clocks"),
    "no-ecc": ("geforce-rtx-3090", SetEccMode(PF, True), "setting-missing", f"{PF} has no ECC"),
    "unknown-mode": ("a40", SetComputeMode(PF, "exclusive-thread"), "setting-refused", "exclusive-process"),
    "no-nvml": ("amd-mi210", SetPowerLimit(PF, 200_000), "nvml-missing", "NVML"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_board_does_not_take_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    board, step, code, words = REFUSED[name]
    machine = Machine(tmp_path, board)
    for dry_run in (True, False):
        problem = machine.refused(step, dry_run=dry_run)
        assert problem.code == code
        assert words in problem.message
    assert machine.host.writes == 0


def test_mig_has_the_default_compute_mode_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a100-pcie-40gb")
    machine.done(SetMigMode(PF, True), CreateGpuInstance(PF, "1g.5gb", 0))
    assert machine.refused(SetComputeMode(PF, "prohibited")).code == "nvml-not-supported"


def test_what_a_controller_kept_is_noted_for_the_boot_of_a_host_with_the_unit(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    keep, forget = KeepPowerLimit(PF, 275_000), KeepPowerLimit(PF, None)
    (without,) = machine.take(keep).changes
    assert (without.before, without.after, without.changed) == ("none", boot.NO_UNIT, False)
    manifest = machine.files.root / wire.MANIFEST.lstrip("/")
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text("{}")
    file = machine.files.root / wire.KEPT_LIMITS.lstrip("/")
    for step, words in ((keep, ("none", "275 W")), (KeepPowerLimit(PF, 250_500), ("275 W", "250.5 W"))):
        (foreseen,) = machine.take(step, dry_run=True).changes
        (done,) = machine.take(step).changes
        assert foreseen == done and (done.before, done.after, done.changed) == (*words, True)
        (again,) = machine.take(step).changes
        assert (again.after, again.changed) == (words[1], False)
    facts = boot_facts.read(machine.host)
    assert facts is not None and facts.kept_limit(PF) == wire.KeptLimit(PF, 250_500, "10de:2235 10de:145a")
    assert facts.kept_limit("0000:42:00.0") is None
    (gone,) = machine.take(forget).changes
    assert (gone.before, gone.after) == ("250.5 W", "none")
    assert not machine.done(forget)
    file.write_text("[]")
    assert machine.refused(keep).code == "unreadable"
    facts = boot_facts.read(machine.host)
    assert facts is not None and "kept-limits.json cannot be read" in facts.problems[0]


def test_a_reboot_commits_ecc_and_loses_the_rest(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    machine.done(LIMIT, CLOCKS, MEMORY, SetComputeMode(PF, "prohibited"), SetEccMode(PF, False))
    found = tuning(machine)
    assert found.locked_memory_clocks_mhz == (405, 405)
    assert (found.power_limit_mw, found.locked_clocks_mhz, found.compute_mode) == (200_000, (1200, 1695), "prohibited")
    assert (found.ecc, found.ecc_pending) == (True, False)
    machine.reboot()
    found = tuning(machine)
    assert (found.power_limit_mw, found.locked_clocks_mhz, found.compute_mode) == (300_000, None, "default")
    assert found.locked_memory_clocks_mhz is None
    assert (found.ecc, found.ecc_pending) == (False, False)


@pytest.mark.parametrize("step", [SetVirtualFunctions(PF, 32), BindDriver((PF,), "vfio-pci")])
def test_a_step_that_takes_the_card_from_its_driver_ends_what_is_known_of_its_clocks(
    step: Step, tmp_path: Path
) -> None:
    machine = Machine(tmp_path, "a40")
    machine.done(CLOCKS, MEMORY)
    assert clock_notes.read(machine.host) == {PF: (1200, 1695), f"{PF} memory clocks": (405, 405)}
    machine.done(step)
    assert clock_notes.read(machine.host) == {}


def test_a_step_that_changes_nothing_keeps_what_is_known_of_the_clocks(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    machine.done(CLOCKS, SetVirtualFunctions(PF, 0), SetVirtualFunctions(PF, 0))
    assert tuning(machine).locked_clocks_mhz == (1200, 1695)


def test_a_clock_above_the_range_disproves_the_note(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    machine.done(SetGpuClocks(PF, (210, 600)), MEMORY)
    assert tuning(machine).locked_clocks_mhz == (210, 600)
    assert tuning(machine).locked_memory_clocks_mhz == (405, 405)
    with machine.files.change() as state:
        state.tunings[PF] = replace(state.tunings[PF], clocks_mhz=(1740, 1740), memory_mhz=None)
    assert tuning(machine).locked_clocks_mhz is None
    assert tuning(machine).locked_memory_clocks_mhz is None
    assert machine.done(SetGpuClocks(PF, (210, 600)), MEMORY)


@pytest.mark.parametrize("clocks", [(405, 7251), UNLOCKED])
def test_a_board_before_ampere_locks_no_memory_clocks(clocks: tuple[int, int], tmp_path: Path) -> None:
    machine = Machine(tmp_path, "t4")
    refused = machine.refused(SetMemoryClocks(PF, clocks))
    assert refused.code == "nvml-not-supported" and "memory clocks" in refused.message
    assert clock_notes.read(machine.host) == {}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"0000:41:00.0": 7}', '{"0000:41:00.0": [1]}', '{"x": [null, 1]}'])
def test_a_note_that_cannot_be_read_is_none(text: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    machine.host.put_file(clock_notes.PATH, text.encode(), 0o644)
    assert tuning(machine).locked_clocks_mhz is None
    assert machine.done(CLOCKS)


UNREAD: dict[str, tuple[str, Step]] = {
    "nvmlDeviceGetPowerManagementLimit": ("power_limit_mw", LIMIT),
    "nvmlDeviceGetSupportedMemoryClocks": ("clocks", CLOCKS),
    "nvmlDeviceGetEccMode": ("ecc", SetEccMode(PF, False)),
    "nvmlDeviceGetComputeMode": ("compute_mode", SetComputeMode(PF, "prohibited")),
}


@pytest.mark.parametrize("function", UNREAD)
def test_a_setting_that_does_not_answer_is_unread_and_the_gpu_stays_usable(function: str, tmp_path: Path) -> None:
    name, step = UNREAD[function]
    machine = Machine(tmp_path, "a40")
    codes = machine.files.root / CODES.lstrip("/")
    codes.parent.mkdir(parents=True, exist_ok=True)
    codes.write_text(f"{function} 999\n")
    gpu = machine.gpu()
    assert gpu.tuning is not None
    assert gpu.unread == ()
    assert "(NVML 999)" in (gpu.tuning.why_unread(name) or "")
    assert getattr(gpu.tuning, name) in (None, ())
    assert machine.refused(step).code == "unreadable"


def test_a_card_on_vfio_has_no_settings_and_a_board_without_ecc_has_none(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "a40", "a40")
    machine.done(BindDriver((PF,), "vfio-pci"))
    assert machine.gpu().tuning is None
    found = tuning(Machine(tmp_path / "rtx", "geforce-rtx-3090"))
    assert (found.ecc, found.ecc_pending, found.unread) == (None, None, ())


def test_a_host_that_lies_about_its_clocks_is_no_mistake_of_ours() -> None:
    run = ClockRun(300, 200, 0)
    lying = GpuTuning(clocks=(run, ClockRun(0, 1 << 40, -5)))
    assert not run.has(250) and run.nearest(250) == (300,)
    assert lying.refuse_clocks((250, 260)) is None
    assert "nearest" in (lying.refuse_clocks((-7, 3)) or "")


def test_clocks_are_runs_of_equal_steps() -> None:
    runs = runs_of((1410, 1395, 1380, 705, 697, 690))
    assert [(one.first, one.last, one.step) for one in runs] == [(690, 697, 7), (705, 1380, 675), (1395, 1410, 15)]
    every = {clock for run in runs for clock in range(0, 2000) if run.has(clock)}
    assert every == {690, 697, 705, 1380, 1395, 1410}
    assert runs_of(()) == ()
    assert [one.has(7) for one in runs_of((7,))] == [True]
    assert clocks_in_words(None) == "unknown"
