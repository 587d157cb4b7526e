# SPDX-License-Identifier: Apache-2.0
"""The PCI bridges above a GPU, from the real path of its folder, and the links of the lab's machines."""

from pathlib import Path

import pytest

from tests.agent.machine import BASE, build
from tests.agent.measured import play
from tests.agent.simulated import PF, Machine
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.facts import topology
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.facts import FabricFacts, GpuTopology, NvLinks
from vgpuctl.errors import UsageError
from vgpuctl_lab.simulated.mix import parse_mix

GPU = "0000:43:00.0"
TREES = {
    "at the root complex": ("pci0000:40", "pci0000:40", ()),
    "behind a root port": ("pci0000:40/0000:40:01.0", "pci0000:40", ("0000:40:01.0",)),
    "behind a switch": (
        "pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:04.0",
        "pci0000:40",
        ("0000:40:01.0", "0000:41:00.0", "0000:42:04.0"),
    ),
    "behind Intel's VMD": (
        "pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0",
        "pci10000:e0",
        ("10000:e0:06.0",),
    ),
    "on a board with a device tree": (
        "platform/20000000.pcie/pci0008:00/0008:00:00.0",
        "pci0008:00",
        ("0008:00:00.0",),
    ),
    "of no PCI host": ("platform/vgpu", None, ()),
}


@pytest.mark.parametrize("what", TREES)
def test_the_bridges_are_read_from_the_root_port_down(tmp_path: Path, what: str) -> None:
    folder, root, bridges = TREES[what]
    real = f"/sys/devices/{folder}/{GPU}"
    tree = {f"{real}/vendor": "0x10de\n", f"/sys/bus/pci/devices/{GPU}": f"-> ../../../devices/{folder}/{GPU}"}
    host = Host(str(build(tmp_path, BASE, tree)))
    assert topology.read(host, GPU, None) == GpuTopology(root, bridges)


def test_a_folder_that_is_no_link_tells_nothing(tmp_path: Path) -> None:
    host = Host(str(build(tmp_path, BASE, {f"/sys/bus/pci/devices/{GPU}/vendor": "0x10de\n"})))
    assert topology.read(host, GPU, None) == GpuTopology()


def places(machine: Machine) -> list[GpuTopology]:
    found = [gpu.topology for gpu in read_facts(machine.host).gpus]
    return [one for one in found if one is not None]


def test_an_hgx_board_has_its_links_to_the_nvswitches(tmp_path: Path) -> None:
    first, second = places(Machine(tmp_path, "h100-sxm5*2"))
    assert first.fabric == FabricFacts("completed", "00000000-0000-0000-0000-000000000000", 0)
    assert [(links.peer, links.peer_kind, len(links.numbers)) for links in first.nvlinks or ()] == [
        ("0000:c5:00.0", "switch", 5),
        ("0000:c6:00.0", "switch", 5),
        ("0000:c7:00.0", "switch", 4),
        ("0000:c8:00.0", "switch", 4),
    ]
    assert (first.module, second.module) == (1, 2)
    assert first.root != second.root


def test_an_nvswitch_board_before_hopper_tells_no_fabric(tmp_path: Path) -> None:
    [first, _] = places(Machine(tmp_path, "a100-sxm4-80gb~switched*2"))
    assert first.fabric is None
    assert {links.peer_kind for links in first.nvlinks or ()} == {"switch"}
    assert first.bridges == ("0000:10:01.0", "0000:20:00.0", "0000:30:00.0")


def test_a_link_is_down_while_its_peer_is_off_the_bus_and_gone_for_a_card_without_driver(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40/passthrough~bridged*3")
    links = (0, 1, 2, 3)
    assert [one.nvlinks for one in places(machine)] == [
        (NvLinks(links, is_active=True, peer="0000:43:00.0", peer_kind="gpu", version=3),),
        (NvLinks(links, is_active=True, peer=PF, peer_kind="gpu", version=3),),
        (),
    ]
    machine.begin("fallen")
    assert [one.nvlinks for one in places(machine)] == [None, (NvLinks(links, is_active=False, version=3),), ()]


@pytest.mark.parametrize("mix", ["a40~joined", "t4~bridged", "h100-sxm5~bridged", "a40~"])
def test_words_that_no_card_takes_are_refused(mix: str) -> None:
    with pytest.raises(UsageError):
        parse_mix(mix)


CONFIG = "usr/share/nvidia/nvswitch/fabricmanager.cfg"


@pytest.mark.parametrize(
    ("state", "status", "mode", "problem"),
    [
        (3, 0, None, None),
        (3, 999, None, "completed with NVML's status 999"),
        (3, 3, 2, "completed with NVML's status 3"),
        (2, 0, None, "in-progress"),
        (2, 0, 0, "in-progress"),
        (2, 0, 1, None),
        (2, 0, 2, None),
        # The status counts only after the set-up has ended.
        (2, 27, 2, None),
        (1, 0, 2, "not-started"),
        (1, 0, 0, "not-started"),
    ],
)
def test_a_gpu_whose_fabric_is_not_set_up_takes_no_vm(
    tmp_path: Path, state: int, status: int, mode: int | None, problem: str | None
) -> None:
    simulated = Machine(tmp_path, "h100-sxm5*2")
    pf = PF
    play(simulated, f"gpu:{pf} fabric_state 0 0:{state}", f"gpu:{pf} fabric_status 0 0:{status}")
    if mode is not None:
        path = simulated.files.root / CONFIG
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# FABRIC_MODE=9\nFABRIC_MODE={mode}\n")
    gpu, other = read_facts(simulated.host).gpus
    assert gpu.unread == () and other.problems == ()
    assert gpu.problems == (() if problem is None else (f"{pf}: its NVSwitch fabric is not set up: {problem}",))
