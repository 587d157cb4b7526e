# SPDX-License-Identifier: Apache-2.0
"""The agent's client of Fabric Manager, on simulated machines: partitions, codes, restarts and versions."""

from pathlib import Path

import pytest

from tests.agent.simulated import PF, Machine
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.fabric_manager import CONFIG, FabricManager
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.fabric import FabricManagerFacts, FabricPartition
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.errors import UsageError
from vgpuctl_lab.card_links import fabric_config
from vgpuctl_lab.simulated.machine import faults
from vgpuctl_lab.simulated.machine.fabric_manager import CODES, WINDOW_S
from vgpuctl_lab.simulated.mix import parse_mix

SHARED, VGPU = "h100-sxm5~fabric-shared*8", "h100-sxm5~fabric-vgpu*8"
SERVICE = "nvidia-fabricmanager.service"
# Partitions by the guide, as `1-4+9-12`; single ones follow.
TABLES = {
    "h100-sxm5*8": (18, "0=1-8 1=1-4 2=5-8 3=1+3 4=2+4 5=5+7 6=6+8", 7),
    "h200-sxm5*8": (18, "0=1-8 1=1-4 2=5-8 3=1+3 4=2+4 5=5+7 6=6+8", 7),
    "b200*8": (18, "1=1-8 2=1-4 3=5-8 4=1-2 5=3-4 6=5-6 7=7-8", 8),
    "a100-sxm4-40gb*16": (
        12,
        "0=1-16 1=1-8 2=9-16 3=1-4+9-12 4=5-8+13-16 5=1-4+13-16 6=5-8+9-12 7=1-4 8=5-8 9=9-12 10=13-16"
        " 11=1-2 12=3-4 13=5-6 14=7-8 15=9-10 16=11-12 17=13-14 18=15-16",
        19,
    ),
    "a100-sxm4-40gb*8": (12, "1=1-8 7=1-4 8=5-8 11=1-2 12=3-4 13=5-6 14=7-8", 19),
}


def wanted(groups: str, first_single: int, gpus: int) -> dict[int, list[int]]:
    found = {}
    for word in groups.split():
        number, _, spans = word.partition("=")
        found[int(number)] = [
            module
            for first, _, last in (span.partition("-") for span in spans.split("+"))
            for module in range(int(first), int(last or first) + 1)
        ]
    return found | {first_single + one: [one + 1] for one in range(gpus)}


def listed(machine: Machine) -> dict[int, FabricPartition]:
    with FabricManager(machine.host) as manager:
        return {one.number: one for one in manager.partitions()}


def active(machine: Machine) -> list[int]:
    return [number for number, one in listed(machine).items() if one.is_active]


def activate(machine: Machine, *numbers: int) -> None:
    with FabricManager(machine.host) as manager:
        for number in numbers:
            manager.activate(number)


def code_of(machine: Machine, call: str, *arguments: object) -> ProblemCode:
    with pytest.raises(Problem) as caught, FabricManager(machine.host) as manager:
        getattr(manager, call)(*arguments)
    assert caught.value.hint or caught.value.code == ProblemCode.BAD_ADDRESS
    return caught.value.code


def begin(machine: Machine, kind: str, value: int = 1) -> None:
    with machine.files.change() as state:
        faults.set_on_host(machine.files, state, kind, value)


def pass_time(machine: Machine, seconds: float) -> None:
    with machine.files.change() as state:
        state.skipped_s += seconds


def fabric_states(machine: Machine) -> list[str | None]:
    fabrics = [gpu.topology.fabric if gpu.topology else None for gpu in read_facts(machine.host).gpus]
    return [None if one is None else one.state for one in fabrics]


def vfs(machine: Machine, *modules: int) -> list[str]:
    """The first VF of each GPU."""
    return [
        card.vf_address(0) for module in modules for card in machine.files.shape.cards if card.links.module == module
    ]


@pytest.mark.parametrize("board", TABLES)
def test_the_partitions_of_each_board_are_the_guides(tmp_path: Path, board: str) -> None:
    links, groups, first_single = TABLES[board]
    cards = int(board.partition("*")[2])
    machine = Machine(tmp_path, board.replace("*", "~fabric-shared*"))
    found = listed(machine)
    assert {number: [gpu.module for gpu in one.gpus] for number, one in found.items()} == wanted(
        groups, first_single, cards
    )
    assert not any(one.is_active for one in found.values())
    for one in found.values():
        expected = links if len(one.gpus) > 1 else 0
        assert {(gpu.links, gpu.most_links) for gpu in one.gpus} == {(expected, expected)}


def test_only_a_board_before_hopper_names_its_gpus(tmp_path: Path) -> None:
    hopper, ampere = Machine(tmp_path / "h", SHARED), Machine(tmp_path / "a", "a100-sxm4-40gb~fabric-shared*8")
    assert {(gpu.uuid, gpu.address) for one in listed(hopper).values() for gpu in one.gpus} == {(None, None)}
    gpu = listed(ampere)[19].gpus[0]
    assert (gpu.uuid, gpu.address) == (ampere.card.uuid, PF)


def test_partitions_of_other_gpus_are_active_at_once_and_overlapping_ones_are_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SHARED)
    activate(machine, 3, 4)
    assert active(machine) == [3, 4]
    for overlapping, there in ((0, "3, 4"), (1, "3, 4"), (7, "3"), (10, "4")):
        with pytest.raises(Problem, match=f"is in the active partition {there} ") as caught:
            activate(machine, overlapping)
        assert caught.value.code == ProblemCode.FABRIC_GPU_TAKEN
    assert code_of(machine, "activate", 3) == ProblemCode.FABRIC_PARTITION_ACTIVE
    assert code_of(machine, "deactivate", 9) == ProblemCode.FABRIC_PARTITION_INACTIVE
    assert code_of(machine, "activate", 15) == ProblemCode.FABRIC_BAD_PARTITION
    assert code_of(machine, "deactivate", 63) == ProblemCode.FABRIC_BAD_PARTITION
    with FabricManager(machine.host) as manager:
        manager.deactivate(3)
    activate(machine, 7)
    assert active(machine) == [4, 7]


def test_a_gpu_that_is_not_there_takes_its_partitions_only_before_hopper(tmp_path: Path) -> None:
    ampere = Machine(tmp_path / "a", "a100-sxm4-40gb~fabric-shared*7")
    assert set(listed(ampere)) == {7, 11, 12, 13, 19, 20, 21, 22, 23, 24, 25}
    hopper = Machine(tmp_path / "h", "h100-sxm5~fabric-shared*4")
    assert len(listed(hopper)) == 15
    assert code_of(hopper, "activate", 2) == ProblemCode.FABRIC_BAD_PARTITION
    activate(hopper, 1)


def test_vfs_are_one_of_each_gpu_in_the_order_of_the_partition(tmp_path: Path) -> None:
    machine = Machine(tmp_path, VGPU, with_vfs=True)
    one, three = vfs(machine, 1, 3)
    second_of_one = machine.card.vf_address(1)
    for refused in ([one], [one, second_of_one], [three, one], [one, three, three], [one, PF], []):
        assert code_of(machine, "activate_with_vfs", 3, refused) == ProblemCode.FABRIC_BAD_PARTITION
    assert code_of(machine, "activate_with_vfs", 3, ["0000:41"]) == ProblemCode.BAD_ADDRESS
    with FabricManager(machine.host) as manager:
        manager.activate_with_vfs(3, [one, three])
        manager.activate_with_vfs(8, vfs(machine, 2))
    assert active(machine) == [3, 8]
    assert code_of(machine, "activate_with_vfs", 7, [one]) == ProblemCode.FABRIC_GPU_TAKEN
    assert code_of(machine, "activate_with_vfs", 8, vfs(machine, 2)) == ProblemCode.FABRIC_PARTITION_ACTIVE


def test_a_vf_that_is_not_enabled_activates_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, VGPU)
    assert code_of(machine, "activate_with_vfs", 7, vfs(machine, 1)) == ProblemCode.FABRIC_BAD_PARTITION


def test_each_mode_takes_its_own_calls(tmp_path: Path) -> None:
    bare = Machine(tmp_path / "0", "h100-sxm5*8")
    refused = ProblemCode.FABRIC_NOT_SUPPORTED
    assert [code_of(bare, *call) for call in (("partitions",), ("activate", 0), ("deactivate", 0))] == [refused] * 3
    with FabricManager(bare.host) as manager:
        assert manager.failed_devices() == ()
    shared, vgpu = Machine(tmp_path / "1", SHARED, with_vfs=True), Machine(tmp_path / "2", VGPU)
    assert code_of(shared, "activate_with_vfs", 7, vfs(shared, 1)) == refused
    assert code_of(vgpu, "activate", 7) == refused
    assert code_of(shared, "set_active", []) == refused


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (-1, ProblemCode.FABRIC_BAD_PARTITION),
        (-2, ProblemCode.FABRIC_REFUSED),
        (-3, ProblemCode.FABRIC_NOT_SUPPORTED),
        (-4, ProblemCode.FABRIC_WRONG_SOCKET),
        (-5, ProblemCode.FABRIC_REFUSED),
        (-6, ProblemCode.FABRIC_VERSION_DIFFERS),
        (-7, ProblemCode.FABRIC_GPU_TAKEN),
        (-8, ProblemCode.FABRIC_STARTING),
        (-9, ProblemCode.FABRIC_UNREACHABLE),
        (-10, ProblemCode.FABRIC_LINK_FAILED),
        (-11, ProblemCode.FABRIC_BAD_PARTITION),
        (-12, ProblemCode.FABRIC_GPU_TAKEN),
        (-15, ProblemCode.FABRIC_STARTING),
        (-17, ProblemCode.FABRIC_GPU_TAKEN),
        (-18, ProblemCode.FABRIC_BAD_PARTITION),
        (-22, ProblemCode.FABRIC_STARTING),
        (-24, ProblemCode.FABRIC_GPU_TAKEN),
        (-27, ProblemCode.FABRIC_LINK_FAILED),
        (-99, ProblemCode.FABRIC_REFUSED),
    ],
)
def test_every_code_is_a_problem_of_its_remedy(tmp_path: Path, code: int, problem: ProblemCode) -> None:
    machine = Machine(tmp_path, SHARED)
    answer(machine, f"fmActivateFabricPartition {code}")
    with pytest.raises(Problem) as caught, FabricManager(machine.host) as manager:
        manager.activate(3)
    assert caught.value.code == problem
    assert f"(code {code})" in caught.value.message and caught.value.hint


@pytest.mark.parametrize("code", [-7, -12, -16, -17, -23, -24])
def test_a_partition_is_active_or_taken_whichever_code_says_it(tmp_path: Path, code: int) -> None:
    machine = Machine(tmp_path, SHARED)
    activate(machine, 3)
    answer(machine, f"fmActivateFabricPartition {code}")
    assert code_of(machine, "activate", 3) == ProblemCode.FABRIC_PARTITION_ACTIVE
    assert code_of(machine, "activate", 0) == ProblemCode.FABRIC_GPU_TAKEN


def test_an_inactive_partition_is_told_from_a_wrong_socket(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SHARED)
    activate(machine, 3)
    answer(machine, "fmDeactivateFabricPartition -4")
    assert code_of(machine, "deactivate", 4) == ProblemCode.FABRIC_PARTITION_INACTIVE
    assert code_of(machine, "deactivate", 3) == ProblemCode.FABRIC_WRONG_SOCKET
    answer(machine, "fmDeactivateFabricPartition -18")
    assert code_of(machine, "deactivate", 4) == ProblemCode.FABRIC_PARTITION_INACTIVE


def test_the_library_is_closed_after_a_refused_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, SHARED)
    library = machine.host.nvfm()
    monkeypatch.setattr(machine.host, "nvfm", lambda: library)
    answer(machine, "fmConnect -6")
    assert code_of(machine, "partitions") == ProblemCode.FABRIC_VERSION_DIFFERS
    (machine.files.root / CODES.lstrip("/")).unlink()
    assert len(listed(machine)) == 15
    assert library.fmLibShutdown() == -4


def test_it_is_reached_where_its_configuration_says(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SHARED)
    config = machine.files.root / CONFIG.lstrip("/")
    for text in (
        "FM_CMD_UNIX_SOCKET_PATH=/run/nvidia-fabricmanager/socket\n",
        "FM_CMD_BIND_INTERFACE = 10.0.0.7\nFM_CMD_PORT_NUMBER = 7000\n",
        "# FM_CMD_PORT_NUMBER=1\nFM_CMD_UNIX_SOCKET_PATH=\n",
    ):
        config.write_text(fabric_config(1) + text)
        assert len(listed(machine)) == 15
    config.write_text(fabric_config(1) + "FM_CMD_UNIX_SOCKET_PATH=/run/s\nUNIX_SOCKET_PATH=/run/s\n")
    assert code_of(machine, "partitions") == ProblemCode.FABRIC_WRONG_SOCKET
    config.unlink()
    machine.run("systemctl", "restart", SERVICE)
    assert code_of(machine, "partitions") == ProblemCode.FABRIC_NOT_SUPPORTED


def test_a_host_without_nvswitch_has_no_library(tmp_path: Path) -> None:
    assert code_of(Machine(tmp_path, "a40"), "partitions") == ProblemCode.FABRIC_LIBRARY_MISSING


def test_while_it_starts_it_is_asked_again_later(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SHARED)
    activate(machine, 3)
    begin(machine, "fabric-starting", 30)
    assert code_of(machine, "partitions") == ProblemCode.FABRIC_STARTING
    pass_time(machine, 30)
    assert active(machine) == [], "it has set up the fabric anew"


def test_a_restart_keeps_the_partitions_that_it_is_told_in_time(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SHARED)
    activate(machine, 3, 4)
    assert machine.run("systemctl", "restart", SERVICE) == (0, "", "")
    for call in (("partitions",), ("activate", 5), ("deactivate", 3)):
        assert code_of(machine, *call) == ProblemCode.FABRIC_STARTING
    assert fabric_states(machine)[:5] == ["completed"] * 4 + ["in-progress"]
    pass_time(machine, WINDOW_S - 5)
    for refused in ([3, 3], [3, 1], [3, 40], list(range(65))):
        assert code_of(machine, "set_active", refused) == ProblemCode.FABRIC_BAD_PARTITION
    with FabricManager(machine.host) as manager:
        manager.set_active([3, 4])
    pass_time(machine, 10)
    assert active(machine) == [3, 4]
    assert code_of(machine, "set_active", [3]) == ProblemCode.FABRIC_NOT_SUPPORTED


def test_a_restart_ends_when_nobody_tells_it_the_partitions(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SHARED)
    activate(machine, 3, 4)
    begin(machine, "fabric-restarted")
    pass_time(machine, WINDOW_S)
    assert code_of(machine, "set_active", [3, 4]) == ProblemCode.FABRIC_UNREACHABLE
    assert "ActiveState=inactive" in machine.run("systemctl", "show", SERVICE)[1]
    assert set(fabric_states(machine)) == {"in-progress"}
    machine.run("systemctl", "start", SERVICE)
    with FabricManager(machine.host) as manager:
        manager.set_active([])
    assert active(machine) == []


def test_a_dead_one_leaves_its_partitions_routed_and_has_them_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SHARED)
    activate(machine, 3)
    begin(machine, "fabric-dead")
    assert code_of(machine, "partitions") == ProblemCode.FABRIC_UNREACHABLE
    assert fabric_states(machine)[:3] == ["completed", "in-progress", "completed"]
    begin(machine, "fabric-dead", 0)
    with FabricManager(machine.host) as manager:
        manager.set_active([3])
        assert [one.number for one in manager.partitions() if one.is_active] == [3]


def test_one_that_restarts_without_resiliency_has_no_partition(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SHARED)
    activate(machine, 3)
    (machine.files.root / CONFIG.lstrip("/")).write_text("FABRIC_MODE=1\n")
    machine.run("systemctl", "restart", SERVICE)
    assert active(machine) == []


def test_one_of_another_version_does_not_start_and_both_versions_are_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SHARED)
    begin(machine, "fabric-version")
    with pytest.raises(Problem) as caught:
        FabricManager(machine.host)
    assert caught.value.code == ProblemCode.FABRIC_VERSION_DIFFERS
    driver = machine.files.shape.nvidia_driver
    assert f"Fabric Manager is of version 570.86.15, the driver of version {driver}" in caught.value.message
    assert machine.run("systemctl", "start", SERVICE)[0] == 1
    begin(machine, "fabric-version", 0)
    with FabricManager(machine.host) as manager:
        manager.set_active([])
    assert active(machine) == []


def test_failed_links_are_listed_before_hopper_and_counted_after(tmp_path: Path) -> None:
    ampere, hopper = Machine(tmp_path / "a", "a100-sxm4-40gb~fabric-shared*8"), Machine(tmp_path / "h", SHARED)
    for machine in (ampere, hopper):
        machine.begin("nvlink-failed", 3)
    with FabricManager(ampere.host) as manager:
        [failed] = manager.failed_devices()
    assert (failed.is_switch, failed.address, failed.uuid, failed.ports) == (False, PF, ampere.card.uuid, (0, 1, 2))
    with FabricManager(hopper.host) as manager:
        assert manager.failed_devices() == ()
    assert [gpu.links for gpu in listed(hopper)[3].gpus] == [15, 18]
    topology = read_facts(hopper.host).gpus[0].topology
    assert topology is not None and topology.nvlinks is not None
    assert sum(len(one.numbers) for one in topology.nvlinks if one.is_active) == 15
    # A restart with the partitions kept trains no link.
    begin(ampere, "fabric-restarted")
    assert code_of(ampere, "failed_devices") == ProblemCode.FABRIC_NOT_SUPPORTED


def test_nvml_says_that_a_gpu_is_set_up_while_its_partition_is_active(tmp_path: Path) -> None:
    assert set(fabric_states(Machine(tmp_path / "0", "h100-sxm5*8"))) == {"completed"}
    machine = Machine(tmp_path / "1", SHARED)
    assert set(fabric_states(machine)) == {"in-progress"}
    activate(machine, 3)
    assert fabric_states(machine) == ["completed", "in-progress"] * 2 + ["in-progress"] * 4
    assert all(not gpu.problems for gpu in read_facts(machine.host).gpus)
    machine.reboot()
    assert active(machine) == []


@pytest.mark.parametrize("mix", ["a40~fabric-shared*2", "h100-sxm5~fabric-shared*4+h100-sxm5~fabric-vgpu*4"])
def test_a_mode_without_nvswitch_and_two_modes_are_refused(mix: str) -> None:
    with pytest.raises(UsageError):
        parse_mix(mix)


def answer(machine: Machine, text: str) -> None:
    """Let a function of the library return a code: `fmConnect -6`."""
    file = machine.files.root / CODES.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def told(machine: Machine) -> FabricManagerFacts:
    found = read_facts(machine.host).fabric_manager
    assert found is not None
    return found


def test_facts_have_the_mode_and_what_is_active(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SHARED)
    activate(machine, 3)
    found = told(machine)
    assert (found.mode, found.problem, found.failed) == (1, None, ())
    assert found.partitions is not None and len(found.partitions) == 15
    assert [one.number for one in found.partitions if one.is_active] == [3]
    assert [gpu.module for gpu in found.partitions[3].gpus] == [1, 3]


@pytest.mark.parametrize(("kind", "words"), [("fabric-dead", "nobody answers"), ("fabric-starting", "still starting")])
def test_facts_say_why_partitions_are_not_known(tmp_path: Path, kind: str, words: str) -> None:
    machine = Machine(tmp_path, VGPU)
    begin(machine, kind)
    found = told(machine)
    assert (found.mode, found.partitions, found.failed) == (2, None, None)
    assert words in (found.problem or "") and found.is_starting == (kind == "fabric-starting")


def test_a_host_with_all_gpus_for_one_is_not_asked_and_one_without_switches_has_none(tmp_path: Path) -> None:
    whole = Machine(tmp_path / "whole", "h100-sxm5*8")
    begin(whole, "fabric-dead")
    assert (told(whole).mode, told(whole).partitions, told(whole).problem) == (0, None, None)
    assert read_facts(Machine(tmp_path / "none", "a40").host).fabric_manager is None
