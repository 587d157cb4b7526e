# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts whose VFs are not enabled yet, and an operator who declares their layouts."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import yaml

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import KEPT_AGENT
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.state import MachineFolder


@dataclasses.dataclass(frozen=True)
class LayoutFleet:
    """The hosts sim-001 and so on, and an operator with an inventory of his own."""

    folder: lab.LabFolder
    operator: Operator

    def declare(self, **layouts: dict[str, Any] | None) -> None:
        """Write each host's variable `vgpu`; `sim_001` is sim-001. A host that is not named has none."""
        folder = self.operator.inventory / "host_vars"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, layout in layouts.items():
            if layout is not None:
                text = yaml.safe_dump({"vgpu": {"version": 1, **layout}}, sort_keys=False)
                (folder / f"{name.replace('_', '-')}.yml").write_text(text)

    def machine(self, name: str) -> MachineFolder:
        """The simulated machine, as its own files say."""
        return MachineFolder(simulated_folder(self.folder).host(name))

    def states(self) -> list[str]:
        """Every machine's whole state as text, without counters that only go up."""
        states = {name: self.machine(name).state() for name in lab.simulated.names(folder=self.folder)}
        return [f"{name} {one.lasting()}" for name, one in states.items()]

    def vfs(self, name: str) -> dict[str, int]:
        """The number of VFs of each card of a host."""
        return {card: count for card, count in self.machine(name).state().vf_counts.items() if count}


def layout_fleet(home: Path, hosts: int, mix: str) -> LayoutFleet:
    """Bring hosts up; `lab.simulated.down(folder=…)` ends them."""
    folder = lab.LabFolder(home / "lab")
    lab.simulated.up(hosts, mix=mix, with_vfs=False, folder=folder)
    KEPT_AGENT.give(folder)
    inventory = home / "inventory"
    inventory.mkdir()
    shutil.copy(simulated_folder(folder).inventory, inventory / "hosts.yml")
    return LayoutFleet(folder, Operator(home, inventory, f"sqlite:///{home}/store.db"))
