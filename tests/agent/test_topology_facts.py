# SPDX-License-Identifier: Apache-2.0
"""The PCI bridges above a GPU, from the real path of its folder."""

from pathlib import Path

import pytest

from tests.agent.machine import BASE, build
from vgpuctl.agent.facts import topology
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.facts import GpuTopology

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
