# SPDX-License-Identifier: Apache-2.0
"""Every dry run is followed by the run: both must end alike, and leave the same in the store.

Generated cases on five simulated hosts (VFs, mdevs, whole cards, MIG): VMs one by one and as gangs, tenants' files,
moves and drains, live where that can be, starts, resizes, preemption, GPUs that are attached and detached, VMs that
are restored and deleted, under quotas that change, with reservations and VMs that wait in the queue. Compared are the
exit code, the refusal with its lines, what a drain says of each VM, and what is in the store afterwards (after the dry
run, before that is forgotten): each VM's host, NUMA nodes and state, its GPUs, functions and types, addresses, volumes,
reservations, networks, quotas and the queue. The use cases run in this process. Each case is tried on what the cases
before it left; now and then VMs are deleted. A dry run may change no row.

The last line of stdout is JSON: the cases by kind and by how they ended, and the differences. The exit code is 1 with a
difference. Run it with `python -m tests.proof.dry_runs [--cases 1000] [--seed 1] [--postgresql]`.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.e2e.small_vms import trust_network
from tests.proof.dry_run_cases import CASES, HOSTS, TENANTS, DryRunCases, ending
from tests.proof.fleet import LAYOUTS, ProofFleet
from tests.proof.kill_test import databases
from tests.proof.stored_rows import look
from vgpuctl.usecases.maintenance.uncordon_host import uncordon_host
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.tenant.create_tenant import create_tenant


class DryRuns:
    """Tries cases on a fleet. endings: how many of each kind ended how. differences: in words, with the case."""

    def __init__(self, fleet: ProofFleet, dice: random.Random) -> None:
        self._fleet = fleet
        self._dice = dice
        self._cases = DryRunCases(dice)
        self.endings: Counter[str] = Counter()
        self.differences: list[str] = []

    def run(self, cases: int) -> None:
        """Try so many cases, and delete all that they left."""
        with self._fleet.services() as services:
            for tenant in TENANTS:
                create_tenant(services, tenant)
            for _ in range(cases):
                (kind,) = self._dice.choices(list(CASES), list(CASES.values()))
                self._case(services, kind)
            self._cases.thin_out(services, 0)
            for host in HOSTS:
                uncordon_host(services, host, gpu=None, reason="over", force=True)

    def _case(self, services: Services, kind: str) -> None:
        work, said = self._cases.make(services, kind)
        before = look(services, TENANTS)
        with services.rehearsed() as rehearsed:
            tried = ending(rehearsed, work) | look(rehearsed, TENANTS)
        kept = look(services, TENANTS)
        for key in before:
            if kept[key] != before[key]:
                self._blame(kind, said, f"{key} after the dry run", kept[key], before[key])
        done = ending(services, work) | look(services, TENANTS)
        self.endings[f"{kind}: {done['error'][1] if done['error'] else 'done'}"] += 1
        for key in done:
            if tried[key] != done[key]:
                self._blame(kind, said, key, tried[key], done[key])
        if kind == "drain":
            for host in HOSTS:
                uncordon_host(services, host, gpu=None, reason="over", force=True)

    def _blame(self, kind: str, said: object, what: str, tried: object, done: object) -> None:
        """Note a difference. Of two lists only the lines that one of them lacks are told."""
        if isinstance(tried, list) and isinstance(done, list):
            tried, done = [one for one in tried if one not in done], [one for one in done if one not in tried]
        told = f"case {self._cases.number}, {kind}: {what}: dry run {tried}, run {done}; asked for {said}"
        self.differences.append(told)
        print(f"DIFFERENCE: {told}", file=sys.stderr, flush=True)


def main() -> int:
    """Bring a fleet up, try the cases, and take it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgresql", action="store_true", help="a store on PostgreSQL in place of SQLite")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with databases() if given.postgresql else contextlib.nullcontext([("sqlite", None)]) as stores:
        told = _prove(given.cases, given.seed, stores[-1][1])
    print(json.dumps(told))
    return 1 if told["differences"] else 0


def _prove(cases: int, seed: int, database: str | None) -> dict[str, Any]:
    """Try cases on a fleet of its own. database: URL of the store, None for a file beside the fleet."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dry-", dir="/tmp") as name:
        fleet = ProofFleet(Path(name), database)
        try:
            fleet.declare(LAYOUTS["sim_004"][3], LAYOUTS["sim_005"][1])
            fleet.operator.does("apply-hosts", "--no-boot", "--reset", "--limit", "sim-004,sim-005")
            fleet.operator.does("list-gpus", "--refresh")
            trust_network(fleet.operator)
            proof = DryRuns(fleet, random.Random(seed))
            proof.run(cases)
        finally:
            fleet.down()
    return {
        "cases": cases,
        "seed": seed,
        "endings": dict(sorted(proof.endings.items())),
        "differences": proof.differences,
        "seconds": round(time.monotonic() - began),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    sys.exit(main())
