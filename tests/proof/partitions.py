# SPDX-License-Identifier: Apache-2.0
"""Lives of VMs on hosts with eight GPUs behind NVSwitch, in both modes, with commands and hosts that fail anywhere.

On three simulated hosts (real sshd, agent and libvirtd), whose layouts declare the mode of Fabric Manager. Each round
one VM is created, stopped, started, restarted, suspended, resumed, resized or deleted. In a part of the rounds one
thing goes wrong before, meanwhile or after: the command is killed after a side effect, Fabric Manager is restarted or
has died, the host loses its power, a guest ends by itself; then `repair` runs. After each round every VM that runs has
exactly the partition of its GPUs, no two share a GPU, and no other partition is active. A life is a VM that was
created. In the end all are deleted and nothing is active.

The first fault ends it, with the exit code 1. `python -m tests.proof.partitions --lives 1000 [--seed 1]`
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import vgpuctl_lab as lab
from tests.e2e.kills import KILLED_RUN
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.libvirt_of import libvirt_of
from tests.proof.answers import Answer, run
from vgpuctl_lab.simulated.machine.fabric_manager import BOARDS
from vgpuctl_lab.simulated.machine.state import MachineFolder

MIX = "h100-sxm5/passthrough*8,h100-sxm5*8,b200/passthrough*8"
GPUS = {"sim-001": "passthrough:H100", "sim-002": "H100XM-80C", "sim-003": "passthrough:B200"}
VGPU = "sim-002"
ACME, NOW = ("--tenant", "acme"), ("--timeout", "0")
SIZE = ("--vcpus", "1", "--memory", "64MiB", "--network", "none")
SIZES = (1, 1, 1, 2, 2, 4, 8)
FAULTS = ("kill", "kill", "kill", "fabric-restarted", "fabric-starting", "fabric-dead", "reboot", "guest-ends")
_FAULTY = 0.3
"""The part of the rounds in which something goes wrong."""


class Fault(Exception):
    """What does not hold, in words."""


class PartitionsProof:
    """One fleet, one store, and rounds."""

    def __init__(self, fleet: LayoutFleet, dice: random.Random) -> None:
        self._fleet, self._dice, self._operator = fleet, dice, fleet.operator
        self._hosts: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.lives = 0

    def prepare(self) -> None:
        """Bring the hosts into their layouts."""
        whole = {"gpus": [{"match": "all", "kind": "passthrough"}], "fabric": {"mode": "shared"}}
        shared = {"gpus": [{"match": "all", "kind": "vgpu"}], "fabric": {"mode": "vgpu"}}
        self._fleet.declare(sim_001=whole, sim_002=shared, sim_003=whole)
        self._operator.does("apply-hosts", "--reset", "--disrupt", "--yes")
        self._operator.does("create-tenant", "acme")
        self._operator.does("list-gpus", "--refresh")

    def round(self, number: int) -> None:
        """Do one thing, perhaps let something fail, and look. Raises Fault."""
        words, host = self._draw(number)
        fault = self._dice.choice(FAULTS) if self._dice.random() < _FAULTY else ""
        done = self._act(words, host, fault)
        told = f"round {number}: {' '.join(words)} on {host}, {fault or 'no fault'}, ended with {done.code}\n{done.err}"
        if done.shows_traceback:
            raise Fault(f"a traceback: {told}")
        if fault:
            lab.faults.clear(host, folder=self._fleet.folder)
            told += self._repaired()
        self._note()
        self.done[f"{words[0]}{' ' + fault if fault else ''}{'' if done.code == 0 else ' (refused or cut short)'}"] += 1
        if found := [one for name in GPUS for one in self._wrong(name)]:
            raise Fault(f"{'; '.join(found)}\nafter {told}")

    def _draw(self, number: int) -> tuple[tuple[str, ...], str]:
        if not self._hosts or self._dice.random() < 0.45:
            host = self._dice.choice(sorted(GPUS))
            size = self._dice.choice(SIZES)
            count = self._dice.choice([1, 2, 4] if size == 1 else [1, 2] if size == 2 else [1])
            wanted = ("--gpu", f"{GPUS[host]}*{size}", "--host", host, "--count", str(count))
            return ("create-vm", f"vm-{number}", *ACME, *SIZE, *wanted), host
        name = self._dice.choice(sorted(self._hosts))
        host = self._hosts[name]
        kinds = ["delete-vm"] * 5 + ["stop-vm", "start-vm", "restart-vm", "resize-vm"]
        kinds += ["suspend-vm", "resume-vm"] if host == VGPU else []
        kind = self._dice.choice(kinds)
        further: tuple[str, ...] = ()
        if kind == "delete-vm":
            others = [one for one in sorted(self._hosts) if one != name and self._hosts[one] == host]
            further = (*self._dice.sample(others, min(len(others), self._dice.choice([0, 1, 3]))), "--yes", *NOW)
        elif kind == "stop-vm":
            further = (*NOW, "--hold", self._dice.choice(["keep", "release"]))
        elif kind == "restart-vm":
            further = NOW
        elif kind == "resize-vm":
            gpu = f"{GPUS[host]}*{self._dice.choice(SIZES)}"
            further = ("--gpu", gpu, "--restart", "--shutdown-timeout", "0")
        return (kind, name, *ACME, *further), host

    def _act(self, words: tuple[str, ...], host: str, fault: str) -> Answer:
        folder = self._fleet.folder
        if fault == "kill":
            return run(self._operator, str(self._dice.randint(1, 9)), *words, module=KILLED_RUN[1])
        if fault == "guest-ends":
            self._end_a_guest(host)
        elif fault == "reboot":
            lab.simulated.reboot(host, folder=folder)
        elif fault:
            value = 2 if fault == "fabric-starting" else None
            lab.faults.begin(host, fault, value, folder=folder)
        return run(self._operator, *words, "--json")

    def _end_a_guest(self, host: str) -> None:
        with libvirt_of(self._operator.inventory, host) as there:
            active = [one.name for one in there.domains() if one.state.is_active()]
            if active:
                there.connection.lookupByName(self._dice.choice(sorted(active))).destroy()

    def _repaired(self) -> str:
        """Repair, again where Fabric Manager needed a moment. Returns what it said. Raises Fault."""
        said = ""
        for _ in range(4):
            done = run(self._operator, "repair", "--json")
            said += f"repair ended with {done.code}:\n{done.out}{done.err}"
            if done.shows_traceback:
                raise Fault(f"a traceback: {said}")
            if not done.code and not json.loads(done.out):
                return said
            time.sleep(0.5)
        raise Fault(f"repair comes to no end: {said}")

    def _note(self) -> None:
        now = {one["vm"]["request"]["name"]: one["host"] for one in self._operator.json("list-vms")}
        self.lives += len(now.keys() - self._hosts.keys())
        self._hosts = now

    def _wrong(self, host: str) -> list[str]:
        """What does not hold on a host, by its own state."""
        machine = self._fleet.machine(host)
        state, partitions = machine.state(), BOARDS[machine.shape.cards[0].links.version].partitions
        active = {partitions[one]: one for one in state.fabric.active}
        found, used = [], set()
        for uuid, domain in state.domains.items():
            own = frozenset(module for one in domain.functions if (module := _module(machine, one)) is not None)
            if own and own not in active:
                found.append(f"{host}: {domain.name} ({uuid}) runs with modules {sorted(own)}, active are {active}")
            used.add(own)
        found += [
            f"{host}: partition {number} is active and no VM runs with it"
            for modules, number in active.items()
            if modules not in used
        ]
        return found

    def end(self) -> None:
        """Delete the VMs: nothing is active. Raises Fault."""
        if self._hosts:
            self._operator.does("delete-vm", *sorted(self._hosts), *ACME, "--yes", *NOW)
        left = {name: self._fleet.machine(name).state().fabric.active for name in GPUS}
        if any(left.values()) or (repaired := self._operator.json("repair")):
            raise Fault(f"in the end there are {left}, {repaired}")


def _module(machine: MachineFolder, function: str) -> int | None:
    """The number of the GPU that a function is, or is a VF of."""
    state = machine.state()
    cards = machine.shape.cards
    return next((one.links.module for one in cards if function in (one.address, *state.vfs_of(one))), None)


def main() -> int:
    """Bring a fleet up, run the rounds, and take it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lives", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    fault, number = None, 0
    with tempfile.TemporaryDirectory(prefix="partitions-", dir="/tmp") as name:
        fleet = layout_fleet(Path(name), len(GPUS), MIX)
        proof = PartitionsProof(fleet, random.Random(given.seed))
        try:
            proof.prepare()
            while proof.lives < given.lives:
                number += 1
                proof.round(number)
                if number % 50 == 0:
                    print(f"{number} rounds, {proof.lives} lives", file=sys.stderr, flush=True)
            proof.end()
        except Fault as found:
            fault = str(found)
            print(f"FAULT: {fault}", file=sys.stderr)
        finally:
            lab.simulated.down(folder=fleet.folder)
    kinds = dict(sorted(proof.done.items()))
    print(json.dumps({"rounds": number, "lives": proof.lives, "fault": fault, "seed": given.seed, "rounds_of": kinds}))
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main())
