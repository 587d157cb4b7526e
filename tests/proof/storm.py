# SPDX-License-Identifier: Apache-2.0
"""Eight operators at once on a fleet that is too small for them: no device may be granted twice.

Each operator runs create-vm (one VM, two, a gang, and names that others use too), delete-vm (its own VMs and others'),
stop-vm, start-vm and the commands on a VM's devices (tests/proof/guest_commands.py), in processes of their own against
one store, on simulated hosts; a round lasts --commands of them each. After every round nothing is in flight: `repair`
must find nothing but disks whose guests are off, and the leases, the ledger, disks, ports, seats, the machines' own
files and the published MIG geometry must agree. At the end all is deleted, and every host is as it was before.
The whole is done with SQLite and with PostgreSQL. Meanwhile an exporter and a web server use the store, and on
PostgreSQL a tenant's role takes all locks and connections that it can get (tests/proof/neighbours.py).

The last line of stdout is JSON. The exit code is 1 when something was granted twice, lost or left.
Run it with `make storm`, or `python -m tests.proof.storm --rounds 6 --commands 8 [--seed 1]`.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.bench.day_checks import Seen, faults, look
from tests.proof.answers import Answer, run
from tests.proof.fleet import GPUS, OFF, VM_HOSTS, ProofFleet
from tests.proof.guest_checks import guest_faults, look_at_guests
from tests.proof.guest_commands import (
    GUEST_KINDS,
    GUEST_REFUSALS,
    NOW,
    GuestCommands,
    drop_snapshots,
    guest_options,
    prepare,
)
from tests.proof.kill_test import STORES, databases
from tests.proof.mig_checks import mig_faults
from tests.proof.neighbours import Neighbours
from tests.proof.node_commands import NODE_KINDS, NODE_REFUSALS, delete_pools, node_words, settle
from vgpuctl.model.vm import VmState

OPERATORS = 8
TENANTS = ("acme", "umbrella")
MIG_GPUS = ("H100-3-40C", "H100-2-20C", "H100-2-20C")
MIG_HOST = "sim-004"
MIG_LAYOUT: Mapping[str, Any] = {
    "gpus": [
        {
            "match": "all",
            "kind": "mig-vgpu",
            "geometry": {"3g.40gb": 1, "2g.20gb": 2},
            "types": ["H100-3-40C", "H100-2-20C"],
        }
    ]
}
REFUSALS = {"no-capacity", "no-licence", "quota-exceeded", "concurrent-change", "state", "not-found", "vm-differs"}
REFUSALS |= set().union(*GUEST_REFUSALS.values(), *NODE_REFUSALS.values())
SEATS = 10
SHARED_NAMES = 4


class Operator:
    """One of them, with dice of its own."""

    def __init__(self, fleet: ProofFleet, number: int, seed: int) -> None:
        self._fleet = fleet
        self._number = number
        self._dice = random.Random(seed * 1000 + number)
        self._made = 0
        self._guests = GuestCommands(self._dice)
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []

    def work(self, commands: int) -> None:
        """Give so many commands; a refusal is an answer, anything else a fault."""
        for _ in range(commands):
            words = self._words()
            answer = run(self._fleet.operator, *words, "--json")
            self.counts[f"{words[0]} {_outcome(answer)}"] += 1
            if answer.shows_traceback or (answer.code and answer.reference not in REFUSALS):
                self.faults.append(f"{' '.join(words)} ended with {answer.code}: {answer.err.strip()}")

    def _words(self) -> tuple[str, ...]:
        dice = self._dice
        tenant = dice.choice(TENANTS)
        self._made += 1
        if dice.random() < 0.45:
            name = f"shared-{dice.randrange(SHARED_NAMES)}"
            if dice.random() < 0.75:
                name = f"vm-{self._number}-{self._made}"
            gpu = dice.choice((*GPUS, *MIG_GPUS))
            several = dice.choice(((), (), (), ("--count", "2", "--gang")))
            options = guest_options(dice, self._number * 100 + self._made, gpu, is_alone=not several)
            return ("create-vm", name, "--tenant", tenant, "--gpu", gpu, *options, "--network", "none", *several)
        with self._fleet.services() as services:
            seen, rows = look_at_guests(services.store), look(services.store)
        if dice.random() < 0.3:
            return node_words(dice.choice(NODE_KINDS), dice, rows) or ("list-node-pools",)
        if dice.random() < 0.5:
            words = self._guests.words(dice.choice(GUEST_KINDS), self._number * 100 + self._made, seen)
            return words or ("list-vms",)
        if not seen.vms:
            return ("list-vms",)
        vm = dice.choice(seen.vms).request
        command = dice.choice(("delete-vm", "delete-vm", "stop-vm", "start-vm"))
        further = {"delete-vm": ("--yes", *NOW), "stop-vm": ("--hold", dice.choice(("keep", "release")), *NOW)}
        return (command, vm.name, "--tenant", vm.tenant, *further.get(command, ()))


class Storm:
    """All of them on one fleet and one store."""

    def __init__(self, fleet: ProofFleet, home: Path, seed: int) -> None:
        self._fleet = fleet
        self._operators = [Operator(fleet, number, seed) for number in range(OPERATORS)]
        self._seen: Seen | None = None
        self.most_vms = 0
        self._faults: list[str] = []
        fleet.declare(MIG_LAYOUT, OFF)
        fleet.operator.does("apply-hosts", "--limit", MIG_HOST, "--no-boot", "--reset")
        for tenant in TENANTS:
            fleet.operator.does("create-tenant", tenant, "--quota", "vms=24")
        prepare(fleet, home, seats=SEATS)
        fleet.operator.does("list-gpus", "--refresh")

    def run(self, rounds: int, commands: int) -> None:
        """Run the rounds, then delete everything."""
        for number in range(1, rounds + 1):
            with ThreadPoolExecutor(OPERATORS) as pool:
                list(pool.map(lambda operator: operator.work(commands), self._operators))
            self._judge(f"round {number}")
            _say(f"round {number}: {self.most_vms} VMs at most, {len(self.faults)} faults")
        self._end()

    @property
    def faults(self) -> list[str]:
        """Everything that did not hold."""
        return [*self._faults, *(fault for one in self._operators for fault in one.faults)]

    @property
    def counts(self) -> dict[str, int]:
        """The commands by how they ended."""
        return dict(sorted(sum((one.counts for one in self._operators), Counter[str]()).items()))

    def _judge(self, when: str) -> None:
        with self._fleet.services() as services:
            settled = settle(self._fleet.operator, look(services.store))
        if settled is not None and settled.code:
            self._faults.append(f"{when}: the controller's round ended with {settled.code}: {settled.err.strip()}")
        if found := [one for one in self._fleet.operator.json("repair") if one["outcome"] != "freed"]:
            self._faults.append(f"{when}: repair finds {found}")
        with self._fleet.services() as services:
            seen = look(services.store)
            guests = look_at_guests(services.store)
            self._faults += [f"{when}: {one}" for one in guest_faults(services, guests, (*VM_HOSTS, MIG_HOST))]
        self.most_vms = max(self.most_vms, sum(vm.state is VmState.RUNNING for vm in seen.vms))
        found = [
            *faults(self._seen or seen, seen, self._fleet.vm_machines, time.time()),
            *mig_faults(
                MIG_HOST,
                self._fleet.layouts.machine(MIG_HOST),
                [lease for lease in seen.leases if lease.host == MIG_HOST],
            ),
        ]
        self._faults += [f"{when}: {one}" for one in found]
        self._seen = seen

    def _end(self) -> None:
        operator = self._fleet.operator
        with self._fleet.services() as services:
            guests = look_at_guests(services.store)
        drop_snapshots(operator, guests)
        delete_pools(operator)
        with self._fleet.services() as services:
            vms = look(services.store).vms
        for tenant in TENANTS:
            names = [vm.request.name for vm in vms if vm.request.tenant == tenant]
            if names:
                operator.does("delete-vm", *names, "--tenant", tenant, "--yes", *NOW)
        for disk in operator.json("list-disks"):
            operator.does("delete-disk", disk["name"], "--tenant", disk["tenant"], "--yes")
        self._judge("at the end")
        self._fleet.declare(OFF, OFF)
        operator.does("apply-hosts", "--no-boot", "--reset")
        self._faults += self._fleet.leaks()


def _outcome(answer: Answer) -> str:
    return "done" if answer.code == 0 else f"refused: {answer.reference}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Bring a fleet up for each kind of store, let the operators loose on it, and take it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--commands", type=int, default=8, help="commands of each operator in a round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=STORES, help="one kind of store alone")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))

    told: dict[str, Any] = {"seed": given.seed, "operators": OPERATORS}
    failed = False
    with databases(given.store) as stores:
        for kind, url in stores:
            with tempfile.TemporaryDirectory(prefix="storm-", dir="/tmp") as name:
                fleet = ProofFleet(Path(name), url)
                try:
                    storm = Storm(fleet, Path(name), given.seed)
                    began = time.perf_counter()
                    with Neighbours(fleet.operator, url).beside() as neighbours:
                        storm.run(given.rounds, given.commands)
                finally:
                    fleet.down()
            told[kind] = {
                "counts": storm.counts,
                "most VMs": storm.most_vms,
                "beside": dict(sorted(neighbours.counts.items())),
                "seconds": round(time.perf_counter() - began),
                "faults": [*storm.faults, *neighbours.faults],
            }
            failed = failed or bool(told[kind]["faults"])
    print(json.dumps({**told, "load": round(os.getloadavg()[0], 1)}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
