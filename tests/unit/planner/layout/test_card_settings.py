# SPDX-License-Identifier: Apache-2.0
"""Power limit, clocks, ECC and compute mode of a card: what is planned, refused, unknown, and made again at boot."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import lease
from tests.unit.planner.layout.simulated_host import TUNING, SimulatedGpu, SimulatedHost
from vgpuctl.agent.wire.boot import BootFacts, KeptLimit
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.agent.wire.steps import Step
from vgpuctl.agent.wire.tuning import (
    UNLOCKED,
    GpuTuning,
    KeepPowerLimit,
    SetComputeMode,
    SetEccMode,
    SetGpuClocks,
    SetMemoryClocks,
    SetPowerLimit,
    UnreadSetting,
)
from vgpuctl.model.layout import (
    DEFAULT_POWER,
    ComputeMode,
    GpuLayout,
    GpuMatch,
    HostLayout,
    Layout,
    MigLayout,
    OffLayout,
    PassthroughLayout,
    TuningBounds,
    TuningLayout,
    VgpuLayout,
)
from vgpuctl.model.lease import Share
from vgpuctl.planner.layout.manifest import manifest_after, manifest_of
from vgpuctl.planner.layout.plan import plan_host
from vgpuctl.planner.layout.result import HostPlan, Phase
from vgpuctl.planner.layout.step_words import describe_step

A40, GPU = "nvidia-a40", "0000:41:00.0"
FOUND = TUNING


def facts_of(tuning: GpuTuning | None, *, board: str = A40, driver: str | None = "nvidia") -> HostFacts:
    facts = SimulatedHost(SimulatedGpu(board)).facts()
    return replace(facts, gpus=tuple(replace(gpu, tuning=tuning, driver=driver) for gpu in facts.gpus))


def plan(
    declared: TuningLayout, tuning: GpuTuning | None = FOUND, layout: Layout | None = None, **facts: str | None
) -> HostPlan:
    host = HostLayout((GpuLayout(GpuMatch(), layout or OffLayout(), "gpu1.yml:4", declared),))
    return plan_host(host, facts_of(tuning, **facts))  # type: ignore[arg-type] # of a test's own names


CHANGES: dict[str, tuple[TuningLayout, GpuTuning, str, Step, Step]] = {
    "power": (
        TuningLayout(power_limit_mw=250_000),
        FOUND,
        "power-limit is 300 W, declared 250 W",
        SetPowerLimit(GPU, 250_000),
        SetPowerLimit(GPU, 300_000),
    ),
    "power-back": (
        TuningLayout(power_limit_mw=DEFAULT_POWER),
        replace(FOUND, power_limit_mw=250_500),
        "power-limit is 250.5 W, declared 300 W, the default",
        SetPowerLimit(GPU, None),
        SetPowerLimit(GPU, 250_500),
    ),
    "clocks": (
        TuningLayout(gpu_clocks_mhz=(1200, 1695)),
        FOUND,
        "gpu-clocks is unknown, declared 1200-1695 MHz",
        SetGpuClocks(GPU, (1200, 1695)),
        SetGpuClocks(GPU, UNLOCKED),
    ),
    "clocks-back": (
        TuningLayout(gpu_clocks_mhz=UNLOCKED),
        replace(FOUND, locked_clocks_mhz=(1200, 1200)),
        "gpu-clocks is 1200 MHz, declared not locked",
        SetGpuClocks(GPU, UNLOCKED),
        SetGpuClocks(GPU, (1200, 1200)),
    ),
    "memory": (
        TuningLayout(memory_clocks_mhz=(405, 7251)),
        replace(FOUND, locked_clocks_mhz=(1200, 1200)),
        "memory-clocks is unknown, declared 405-7251 MHz",
        SetMemoryClocks(GPU, (405, 7251)),
        SetMemoryClocks(GPU, UNLOCKED),
    ),
    "memory-back": (
        TuningLayout(memory_clocks_mhz=UNLOCKED),
        replace(FOUND, locked_memory_clocks_mhz=(405, 405)),
        "memory-clocks is 405 MHz, declared not locked",
        SetMemoryClocks(GPU, UNLOCKED),
        SetMemoryClocks(GPU, (405, 405)),
    ),
    "ecc": (
        TuningLayout(ecc=False),
        FOUND,
        "ecc is enabled, declared disabled",
        SetEccMode(GPU, False),
        SetEccMode(GPU, True),
    ),
    "ecc-called-off": (
        TuningLayout(ecc=True),
        replace(FOUND, ecc_pending=False),
        "ecc is enabled, disabled pending, declared enabled",
        SetEccMode(GPU, True),
        SetEccMode(GPU, False),
    ),
    "compute-mode": (
        TuningLayout(compute_mode=ComputeMode.PROHIBITED),
        FOUND,
        "compute-mode is default, declared prohibited",
        SetComputeMode(GPU, "prohibited"),
        SetComputeMode(GPU, "default"),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_difference_is_one_step_that_disturbs_nobody_and_has_its_undo(name: str) -> None:
    declared, found, words, step, undo = CHANGES[name]
    planned = plan(declared, found)
    assert [str(one) for one in planned.differences] == [f"{GPU}: {words}"]
    (taken,) = planned.steps
    assert (taken.step, taken.undo, taken.phase) == (step, (undo,), Phase.CARD_SETTINGS)
    assert (taken.disturbs, taken.processes, taken.needs_reset) == ((), (), False)
    assert planned.obstacles == () and planned.notes == ()
    assert GPU in describe_step(step)


AS_DECLARED = {
    "undeclared": (TuningLayout(), GpuTuning()),
    "power": (TuningLayout(power_limit_mw=300_000), FOUND),
    "default-power": (TuningLayout(power_limit_mw=DEFAULT_POWER), FOUND),
    "clocks": (TuningLayout(gpu_clocks_mhz=(1200, 1200)), replace(FOUND, locked_clocks_mhz=(1200, 1200))),
    "memory": (TuningLayout(memory_clocks_mhz=(405, 405)), replace(FOUND, locked_memory_clocks_mhz=(405, 405))),
    "unlocked": (TuningLayout(gpu_clocks_mhz=UNLOCKED), replace(FOUND, clocks=(), locked_clocks_mhz=UNLOCKED)),
    "ecc": (TuningLayout(ecc=True), FOUND),
    "compute-mode": (TuningLayout(compute_mode=ComputeMode.DEFAULT), FOUND),
}


@pytest.mark.parametrize("name", AS_DECLARED)
def test_what_is_as_declared_gets_no_step(name: str) -> None:
    planned = plan(*AS_DECLARED[name])
    assert planned == HostPlan()


REFUSED: dict[str, tuple[TuningLayout, GpuTuning | None, Layout, str, str]] = {
    "too-little": (
        TuningLayout(power_limit_mw=99_000),
        FOUND,
        OffLayout(),
        "power-limit-refused",
        "99 W is outside what the board takes, 100 W to 300 W",
    ),
    "too-much": (TuningLayout(power_limit_mw=300_500), FOUND, OffLayout(), "power-limit-refused", "300.5 W is outside"),
    "no-limit": (TuningLayout(power_limit_mw=DEFAULT_POWER), GpuTuning(), OffLayout(), "no-power-limit", "power limit"),
    "no-default": (
        TuningLayout(power_limit_mw=DEFAULT_POWER),
        replace(FOUND, power_default_mw=None),
        VgpuLayout(),
        "no-power-limit",
        "power limit",
    ),
    "between": (
        TuningLayout(gpu_clocks_mhz=(1200, 1700)),
        FOUND,
        OffLayout(),
        "clocks-refused",
        "1700 MHz is not among the clocks of the board, which are 210 to 1740 MHz; nearest: 1695 and 1710",
    ),
    "above": (TuningLayout(gpu_clocks_mhz=(1800, 1900)), FOUND, OffLayout(), "clocks-refused", "nearest: 1740"),
    "no-clocks": (
        TuningLayout(gpu_clocks_mhz=(900, 900)),
        replace(FOUND, clocks=()),
        OffLayout(),
        "no-clocks",
        "NVIDIA A40",
    ),
    "memory-between": (
        TuningLayout(memory_clocks_mhz=(405, 6001)),
        FOUND,
        OffLayout(),
        "clocks-refused",
        "6001 MHz is not among the memory clocks of the board, which are 405 to 7251 MHz; nearest: 7251 and 405",
    ),
    "no-memory-clocks": (
        TuningLayout(memory_clocks_mhz=(405, 405)),
        replace(FOUND, memory_clocks=()),
        OffLayout(),
        "no-clocks",
        "does not tell the memory clocks of NVIDIA A40",
    ),
    "no-ecc": (TuningLayout(ecc=True), replace(FOUND, ecc=None, ecc_pending=None), MigLayout(), "no-ecc", "has no ECC"),
    "no-mode": (
        TuningLayout(compute_mode=ComputeMode.DEFAULT),
        GpuTuning(),
        OffLayout(),
        "no-compute-mode",
        "has no compute mode",
    ),
    "no-nvml": (TuningLayout(1, None, True), None, OffLayout(), "settings-unreadable", "power_limit_w and ecc"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_board_does_not_take_is_an_obstacle_and_no_step(name: str) -> None:
    declared, found, layout, code, words = REFUSED[name]
    planned = plan(declared, found, layout)
    obstacle = planned.obstacles[-1]
    assert (obstacle.code, obstacle.gpu, obstacle.origin) == (code, GPU, "gpu1.yml:4")
    assert words in obstacle.reason
    assert planned.steps == ()


@pytest.mark.parametrize("clocks", [(405, 405), UNLOCKED])
def test_memory_clocks_of_a_board_before_ampere_are_refused(clocks: tuple[int, int]) -> None:
    planned = plan(TuningLayout(memory_clocks_mhz=clocks), board="nvidia-t4")
    (obstacle,) = planned.obstacles
    assert obstacle.code == "no-clocks" and obstacle.remedy == "leave memory_clocks_mhz out"
    assert obstacle.reason.endswith(", a board of Turing") and planned.steps == ()


def test_settings_of_nvml_are_refused_for_a_gpu_of_another_vendor() -> None:
    planned = plan(TuningLayout(power_limit_mw=1), None, board="intel-flex-170")
    assert [one.code for one in planned.obstacles] == ["wrong-vendor"]
    assert "power_limit_w" in planned.obstacles[0].reason


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("power_limit_mw", TuningLayout(power_limit_mw=250_000)),
        ("power_default_mw", TuningLayout(power_limit_mw=DEFAULT_POWER)),
        ("clocks", TuningLayout(gpu_clocks_mhz=(1200, 1695))),
        ("memory_clocks", TuningLayout(memory_clocks_mhz=(405, 405))),
        ("ecc", TuningLayout(ecc=False)),
        ("compute_mode", TuningLayout(compute_mode=ComputeMode.PROHIBITED)),
    ],
)
def test_a_setting_that_could_not_be_read_is_unknown_and_gets_no_step(name: str, declared: TuningLayout) -> None:
    planned = plan(declared, replace(FOUND, unread=(UnreadSetting(name, "NVML does not tell it: Unknown Error"),)))
    assert (planned.steps, planned.differences, planned.obstacles) == ((), (), ())
    assert "Unknown Error" in planned.notes[0] and planned.notes[0].startswith(GPU)
    assert planned.unknown == (GPU,)


def test_an_unread_setting_does_not_hide_another() -> None:
    found = replace(FOUND, unread=(UnreadSetting("ecc", "NVML does not tell it"),))
    planned = plan(TuningLayout(power_limit_mw=250_000, ecc=False), found)
    assert [one.step for one in planned.steps] == [SetPowerLimit(GPU, 250_000)]
    assert len(planned.notes) == 1


def test_ecc_of_a_card_on_vfio_is_unknown_until_the_host_has_it() -> None:
    planned = plan(TuningLayout(ecc=True), None, PassthroughLayout(), driver="vfio-pci")
    assert (planned.steps, planned.differences, planned.obstacles) == ((), (), ())
    assert "vfio-pci has the card: pending until NVIDIA's driver has it" in planned.notes[0]
    assert planned.unknown == (GPU,)


def test_ecc_of_a_whole_card_is_set_before_it_goes_to_vfio() -> None:
    planned = plan(TuningLayout(ecc=False), FOUND, PassthroughLayout("vfio-pci"))
    assert [one.phase for one in planned.steps] == [Phase.CARD_SETTINGS, Phase.HAND_OVER]


def test_a_card_that_comes_back_to_its_driver_is_set_later() -> None:
    planned = plan(TuningLayout(power_limit_mw=250_000), None, OffLayout(), driver="vfio-pci")
    assert [one.phase for one in planned.steps] == [Phase.DRIVER]
    assert planned.later == (f"{GPU}: power_limit_w, once its driver has it",)
    assert "unknown" in str(planned.differences[-1])


def test_a_pending_ecc_mode_is_no_second_step_and_names_whom_the_reboot_ends() -> None:
    held = [
        lease("gpu1", Share(GPU, Sharing.VF_PROFILE, "A40-8Q", f"{GPU[:-1]}{number}", "558"), vm_name=f"web-{number}")
        for number in range(4, 8)
    ]
    layout = HostLayout((GpuLayout(GpuMatch(), VgpuLayout(), "gpu1.yml:4", TuningLayout(ecc=False)),))
    planned = plan_host(layout, facts_of(replace(FOUND, ecc_pending=False)), held)
    (difference,) = (one for one in planned.differences if one.subject == "ecc")
    assert str(difference) == f"{GPU}: ecc is enabled, disabled pending, declared disabled"
    ended = "VM web-4 of acme, VM web-5 of acme, VM web-6 of acme and 1 more"
    assert difference.remedy == f"it counts after a reboot of the host, which ends {ended}"
    assert not [one for one in planned.steps if one.phase is Phase.CARD_SETTINGS]


def test_a_card_that_changes_hands_for_its_vfs_is_set_again() -> None:
    declared = TuningLayout(power_limit_mw=250_000, gpu_clocks_mhz=(1200, 1695))
    found = replace(FOUND, power_limit_mw=250_000, locked_clocks_mhz=(1200, 1695))
    planned = plan(declared, found, VgpuLayout())
    assert [one.phase for one in planned.steps] == [
        Phase.VIRTUAL_FUNCTIONS,
        Phase.CARD_SETTINGS,
        Phase.CARD_SETTINGS,
    ]
    assert [one.subject for one in planned.differences] == ["virtual-functions"]


def test_every_step_reaches_the_layout_and_the_next_plan_has_none() -> None:
    host = SimulatedHost(SimulatedGpu(A40))
    host.services["dcgm.service"] = False
    declared = TuningLayout(250_000, (1200, 1695), None, ComputeMode.PROHIBITED, (405, 405))
    for layout in (VgpuLayout(), OffLayout()):
        entry = HostLayout((GpuLayout(GpuMatch(), layout, "gpu1.yml:4", declared),))
        for planned in plan_host(entry, host.facts()).steps:
            host.take(planned.step)
        assert plan_host(entry, host.facts()) == HostPlan()


def test_a_boot_sets_what_it_loses_and_leaves_ecc_to_the_card() -> None:
    declared = TuningLayout(250_000, UNLOCKED, True, ComputeMode.EXCLUSIVE_PROCESS, (405, 7251))
    layout = HostLayout((GpuLayout(GpuMatch(), OffLayout(), "gpu1.yml:4", declared),))
    facts = facts_of(FOUND)
    steps = [one.step for one in manifest_of(layout, facts).steps]
    wanted = [
        SetPowerLimit(GPU, 250_000),
        SetGpuClocks(GPU, UNLOCKED),
        SetMemoryClocks(GPU, (405, 7251)),
        SetComputeMode(GPU, "exclusive-process"),
    ]
    assert steps[-4:] == wanted
    after = manifest_after(layout, facts, [one.step for one in plan_host(layout, facts).steps])
    assert after == manifest_of(layout, facts)
    quiet = replace(layout, gpus=(replace(layout.gpus[0], tuning=TuningLayout(0, None, True, ComputeMode.DEFAULT)),))
    assert not {type(one.step) for one in manifest_of(quiet, facts).steps} & {type(one) for one in wanted}


def test_each_gpu_of_an_entry_for_all_is_judged_by_its_own_bounds() -> None:
    facts = SimulatedHost(SimulatedGpu(A40), SimulatedGpu("nvidia-t4", address="0000:43:00.0")).facts()
    bounds: dict[str, tuple[int, int]] = {GPU: (100_000, 300_000), "0000:43:00.0": (60_000, 70_000)}

    def tuned(gpu: Gpu) -> Gpu:
        return replace(gpu, tuning=replace(FOUND, power_limits_mw=bounds[gpu.address]))

    layout = HostLayout((GpuLayout(GpuMatch(), OffLayout(), "a:1", TuningLayout(power_limit_mw=250_000)),))
    planned = plan_host(layout, replace(facts, gpus=tuple(tuned(gpu) for gpu in facts.gpus)))
    assert [one.gpu for one in planned.steps] == [GPU]
    assert [(one.gpu, one.code) for one in planned.obstacles] == [("0000:43:00.0", "power-limit-refused")]


def bounded(lowest_mw: int, highest_mw: int, tuning: GpuTuning | None = FOUND, board: str = A40) -> HostPlan:
    """The plan of a layout that leaves the power limit to a controller."""
    entry = GpuLayout(GpuMatch(), OffLayout(), "gpu1.yml:4", bounds=TuningBounds((lowest_mw, highest_mw)))
    return plan_host(HostLayout((entry,)), facts_of(tuning, board=board))


def test_a_limit_that_is_left_to_a_controller_is_as_declared_wherever_it_is_in_its_bounds() -> None:
    for limit_mw in (200_000, 250_500, 300_000):
        found = bounded(200_000, 300_000, replace(FOUND, power_limit_mw=limit_mw))
        assert (found.steps, found.differences, found.obstacles) == ((), (), ())
    layout = HostLayout((GpuLayout(GpuMatch(), OffLayout(), bounds=TuningBounds((200_000, 300_000))),))
    facts = facts_of(FOUND)
    assert [one for one in manifest_of(layout, facts).steps if isinstance(one.step, SetPowerLimit)] == []


# Bounds of the layout, the limit that the boot sets, the card that it is of, and what a plan does about it.
KEPT: dict[str, tuple[TuningBounds, int, str, bool]] = {
    "in bounds": (TuningBounds((200_000, 300_000)), 275_000, "10de:2235 10de:145a", False),
    "outside": (TuningBounds((200_000, 300_000)), 175_000, "10de:2235 10de:145a", True),
    "no bounds": (TuningBounds(), 275_000, "10de:2235 10de:145a", True),
    "another card": (TuningBounds((200_000, 300_000)), 275_000, "10de:20f1 10de:145f", True),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_tuned_limit_is_set_at_boot_only_where_the_layout_leaves_it_to_a_controller(name: str) -> None:
    bounds, limit_mw, card, is_dropped = KEPT[name]
    boot = BootFacts("m", True, kept_limits=(KeptLimit(GPU, limit_mw, card),))
    layout = HostLayout((GpuLayout(GpuMatch(), OffLayout(), "gpu1.yml:4", bounds=bounds),))
    found = plan_host(layout, replace(facts_of(FOUND), boot=boot))
    assert [one.step for one in found.steps] == ([KeepPowerLimit(GPU, None)] if is_dropped else [])
    assert [one.subject for one in found.differences] == (["kept-power-limit"] if is_dropped else [])
    assert [one.undo for one in found.steps] == (
        [] if not is_dropped else [()] if name == "another card" else [(KeepPowerLimit(GPU, limit_mw),)]
    )
    assert plan_host(layout, replace(facts_of(FOUND), boot=replace(boot, kept_limits=()))).steps == ()


def test_a_tuned_limit_is_set_again_where_the_card_changes_hands() -> None:
    boot = BootFacts("m", True, kept_limits=(KeptLimit(GPU, 275_000, "10de:2235 10de:145a"),))
    entry = GpuLayout(GpuMatch(), VgpuLayout(), "gpu1.yml:4", bounds=TuningBounds((200_000, 300_000)))
    steps = plan_host(HostLayout((entry,)), replace(facts_of(FOUND), boot=boot)).steps
    assert [one.phase for one in steps] == [Phase.VIRTUAL_FUNCTIONS, Phase.CARD_SETTINGS]
    assert steps[-1].step == SetPowerLimit(GPU, 275_000)


WRONG_BOUNDS: dict[str, tuple[HostPlan, str, str]] = {
    "excludes-present": (
        bounded(150_000, 250_000),
        "power-limit-refused",
        "its power limit is 300 W, outside of tune.power_limit_w, 150 W to 250 W",
    ),
    "above-present": (
        bounded(280_000, 300_000, replace(FOUND, power_limit_mw=250_000)),
        "power-limit-refused",
        "its power limit is 250 W, outside of tune.power_limit_w, 280 W to 300 W",
    ),
    "beyond-board": (bounded(200_000, 400_000), "power-limit-refused", "400 W is outside what the board takes"),
    "below-board": (bounded(50_000, 300_000), "power-limit-refused", "50 W is outside what the board takes"),
    "no-limit": (
        bounded(200_000, 300_000, replace(FOUND, power_limit_mw=None, power_limits_mw=None)),
        "no-power-limit",
        "has no power limit",
    ),
}


@pytest.mark.parametrize("name", WRONG_BOUNDS)
def test_bounds_that_the_card_is_outside_of_are_refused_with_both_values(name: str) -> None:
    found, code, reason = WRONG_BOUNDS[name]
    assert found.steps == ()
    (obstacle,) = found.obstacles
    assert (obstacle.code, obstacle.origin) == (code, "gpu1.yml:4")
    assert reason in obstacle.reason


def test_bounds_of_a_limit_that_cannot_be_read_are_unknown() -> None:
    unread = replace(FOUND, unread=(UnreadSetting("power_limit_mw", "NVML: Unknown Error"),))
    found = bounded(150_000, 200_000, unread)
    assert (found.steps, found.obstacles) == ((), ())
    assert "its power limit is declared and unknown: NVML: Unknown Error" in found.notes[0]
