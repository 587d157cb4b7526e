# SPDX-License-Identifier: Apache-2.0
"""A small fleet of simulated hosts that a proof works on, and one comparison that finds everything that leaked.

VMs go to sim-001 to sim-003 (an A40 with types on VFs, an A40 with mdevs on VFs, a T4 beside a GeForce); the layouts
of sim-004 and sim-005 (an H100 with MIG, an L40S) change. Each is witnessed by the machine's own files and by libvirt.
"""

import base64
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.operator import Operator
from tests.proof.guest_checks import state_files
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.usecases.running.services import Services
from vgpuctl.wiring import Settings, open_services
from vgpuctl_lab.simulated.machine.state import MachineFolder

MIX = "a40,a40/mdev-vf,t4+rtx-3090,h100-pcie,l40s"
GPUS = ("A40-8Q", "A40-24Q", "2*A40-12Q", "T4-4Q", "2*T4-2Q", "passthrough:nvidia-geforce-rtx-3090")
VM_HOSTS = ("sim-001", "sim-002", "sim-003")
LAYOUT_HOSTS = ("sim-004", "sim-005")

VGPU: dict[str, Any] = {"gpus": [{"match": "all", "kind": "vgpu"}]}
_MIXED: dict[str, Any] = {
    "gpus": [
        {"match": {"board": "T4"}, "kind": "vgpu"},
        {"match": {"address": "0000:43:00.0"}, "kind": "passthrough"},
    ]
}
OFF: dict[str, Any] = {"gpus": [{"match": "all", "kind": "off"}]}
LAYOUTS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "sim_004": (
        OFF,
        VGPU,
        {"gpus": [{"match": "all", "kind": "mig", "geometry": {"3g.40gb": 1, "1g.10gb": 3}}]},
        {
            "gpus": [
                {
                    "match": "all",
                    "kind": "mig-vgpu",
                    "geometry": {"3g.40gb": 1, "2g.20gb": 2},
                    "types": ["H100-3-40C", "H100-2-20C"],
                    "shares": {"H100-2-20C": 1},
                }
            ]
        },
    ),
    "sim_005": (
        OFF,
        VGPU,
        {"gpus": [{"match": "all", "kind": "vgpu", "types": ["L40S-8Q"], "shares": {"L40S-8Q": 3}}]},
    ),
}


class ProofFleet:
    """The hosts, an operator with the store at `database`, and what they looked like before the first command.

    restores: the hosts restore their layouts when they boot.
    """

    def __init__(self, home: Path, database: str | None = None, *, restores: bool = False) -> None:
        self.layouts: LayoutFleet = layout_fleet(home, 5, MIX)
        try:
            self._prepare(home, database, restores=restores)
        except BaseException:
            self.down()
            raise

    def _prepare(self, home: Path, database: str | None, *, restores: bool) -> None:
        self.operator = self.layouts.operator
        if database is not None:
            key = home / "store.key"
            key.write_bytes(base64.b64encode(os.urandom(32)))
            key.chmod(0o600)
            variables = {**self.operator.variables, "VGPUCTL_KEY_FILE": str(key)}
            self.operator = dataclasses.replace(self.operator, database=database, variables=variables)
        self.vm_machines: dict[str, MachineFolder] = {name: self.layouts.machine(name) for name in VM_HOSTS}
        self.declare(OFF, OFF)
        self.operator.does("apply-hosts", "--reset", *(() if restores else ("--no-boot",)))
        self.operator.does("list-gpus", "--refresh")
        self.before = self.state()

    def declare(self, first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
        """Write the inventory: what sim-004 and sim-005 are to be; the other hosts stay as they are."""
        self.layouts.declare(sim_001=VGPU, sim_002=VGPU, sim_003=_MIXED, sim_004=dict(first), sim_005=dict(second))

    def services(self) -> Services:
        """The product's services on this store and inventory, to look with."""
        settings = Settings([str(self.operator.inventory)], self.operator.database, command_timeout_s=300)
        return open_services(settings, lambda _text: None)

    def state(self) -> dict[str, Any]:
        """By host: the machine's own state without counters that only go up, domains, volumes and guests' state."""
        found: dict[str, Any] = {}
        with self.services() as services:
            for name in lab.simulated.names(folder=self.layouts.folder):
                machine = dataclasses.asdict(self.layouts.machine(name).state().lasting())
                # A card without VFs, or with MIG off, may have no entry for them.
                machine["vf_counts"] = {card: count for card, count in machine["vf_counts"].items() if count}
                machine["mig_modes"] = {card: modes for card, modes in machine["mig_modes"].items() if any(modes)}
                hypervisor = services.host(name).hypervisor
                storage = Storage(hypervisor)
                pools = [pool for pool in storage.pools() if pool.is_active]
                found[name] = {
                    **machine,
                    "libvirt domains": sorted(domain.name for domain in hypervisor.domains()),
                    "libvirt volumes": sorted(
                        f"{pool.name}/{volume.name}" for pool in pools for volume in storage.volumes(pool.name)
                    ),
                    "TPMs and UEFI variables": state_files(self.layouts.machine(name)),
                }
        return found

    def leaks(self) -> list[str]:
        """Everything that is not as it was before the first command, a sentence each."""
        now = self.state()
        return [
            f"{name}: {key} was {was[key]}, is {now[name][key]}"
            for name, was in self.before.items()
            for key in was
            if was[key] != now[name][key]
        ]

    def reboot(self, host: str) -> None:
        """Let a host lose its power and boot."""
        lab.simulated.reboot(host, folder=self.layouts.folder)

    def with_faults(self, *hosts: str) -> Operator:
        """The operator whose `tests.e2e.killed_run` lets these hosts fail."""
        variables = {"VGPUCTL_TESTS_LAB": str(self.layouts.folder.path), "VGPUCTL_TESTS_HOSTS": ",".join(hosts)}
        return dataclasses.replace(self.operator, variables={**self.operator.variables, **variables})

    def end_faults(self) -> None:
        """End every fault of every host."""
        for host in self.before:
            lab.faults.clear(host, folder=self.layouts.folder)

    def down(self) -> None:
        """End the hosts."""
        lab.simulated.down(folder=self.layouts.folder)
