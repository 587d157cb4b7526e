# SPDX-License-Identifier: Apache-2.0
"""Commands that are killed, or interrupted twice, at random moments; then `repair`, and nothing may have leaked.

On simulated hosts (real sshd, agent and libvirtd), half of the time with SQLite and half with PostgreSQL as the store.
The commands that docs/reliability.md lists run in processes of their own. Most get kill -9, or SIGINT and SIGTERM one
after the other, at a moment drawn from the time that the command usually takes. After each, `repair` must succeed, a
host or GPU that was closed is opened again, no other may be closed, and store, machines and libvirt must agree
(tests/bench/day_checks.py, tests/proof/guest_checks.py). Every --sweep commands each VM that runs is restarted and has
exactly its devices; then all is deleted, and every host must be as it was before the first command.

The last line of stdout is JSON. The exit code is 1 when something leaked or failed.
Run it with `make kill-test`, or `python -m tests.proof.kill_test --minutes 60 [--seed 1]`.
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
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests import next_version
from tests.bench.day_checks import Seen, faults, look
from tests.postgres_fixture import LocalPostgres, find_programs
from tests.proof.answers import Answer, run
from tests.proof.fleet import GPUS, LAYOUT_HOSTS, LAYOUTS, OFF, VM_HOSTS, ProofFleet
from tests.proof.guest_checks import GuestSeen, guest_faults, look_at_guests, started_faults
from tests.proof.guest_commands import (
    GUEST_KINDS,
    GUEST_REFUSALS,
    NOW,
    GuestCommands,
    drop_snapshots,
    guest_options,
    prepare,
)
from tests.proof.node_commands import NODE_KINDS, NODE_REFUSALS, delete_pools, node_words, settle, without_nodes
from vgpuctl.model.restriction import RestrictionKind
from vgpuctl.model.vm import VmState

SOON = ("--shutdown-timeout", "0")
REFUSALS = {"no-capacity", "no-licence", "quota-exceeded", "concurrent-change"}
FURTHER_REFUSALS = {
    **GUEST_REFUSALS,
    **NODE_REFUSALS,
    **{"resize": {"state"}, "onboard": {"vm-differs", "state"}, "drain": {"partial-failure"}, "move": {"state"}},
    **{"delete": {"state"}, "offboard": {"state", "partial-failure"}},
}
"""A tenant's file is drawn anew each time, with another GPU for a VM that is there; a drain may find no other place.
A gang is not resized, a VM with snapshots is not moved, nor deleted where it would keep a disk that has some. A disk
that a pruned VM left is not made again."""
SEATS = 10
STORES = ("sqlite", "postgresql")
FIRST_GUESS_S = 1.0
MOST_FAULTS = 20
KINDS = [
    *["create"] * 12, *["stop"] * 10, *["delete"] * 5, *["start", "apply"] * 3, *["gang", "onboard", "move"] * 2,
    *["resize"] * 2, "offboard", "gc", "drain", "quarantine", *GUEST_KINDS, *NODE_KINDS,
]  # fmt: skip
REASON = ("--reason", "the proof")
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class KillTest:
    """One fleet and one store."""

    def __init__(self, fleet: ProofFleet, home: Path, dice: random.Random, *, sweep_every: int) -> None:
        self._fleet = fleet
        self._home = home
        self._dice = dice
        self._sweep_every = sweep_every
        self._usual_s: dict[str, float] = defaultdict(lambda: FIRST_GUESS_S)
        self._number = 0
        self._seen: Seen | None = None
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._is_told = False
        self._guests = GuestCommands(dice)
        fleet.operator.does("create-tenant", "acme")
        prepare(fleet, home, seats=SEATS)

    def run(self, seconds: float, commands: int | None = None) -> None:
        """Go on for this long, or for so many commands however long they take; then delete everything and look."""
        end = time.monotonic() + seconds
        while len(self.faults) < MOST_FAULTS:
            if self._number >= commands if commands is not None else time.monotonic() >= end:
                break
            self._step()
            if self._number % self._sweep_every == 0:
                self._sweep()
        self._sweep()

    def _step(self) -> None:
        self._number += 1
        words = None
        while words is None:
            kind = self._dice.choice(KINDS)
            words = self._words(kind)
        how = self._dice.choices(("kill", "interrupt", "whole"), (5, 3, 2))[0]
        done = self._command(kind, words, how)
        self._judge(kind, words, how, done)
        self._fix(f"{' '.join(words)} ({how})", done)

    def _words(self, kind: str) -> Sequence[str] | None:
        """The command of this kind, None when there is nothing that it could work on."""
        dice = self._dice
        if kind in GUEST_KINDS:
            return self._guests.words(kind, self._number, self._look_at_guests())
        if kind in NODE_KINDS:
            return node_words(kind, dice, self._look())
        if kind in ("create", "gang"):
            return self._creation(is_gang=kind == "gang")
        if kind == "apply":
            self._fleet.declare(dice.choice(LAYOUTS["sim_004"]), dice.choice(LAYOUTS["sim_005"]))
            return ("apply-hosts", "--limit", ",".join(LAYOUT_HOSTS), "--no-boot", "--reset")
        if kind == "gc":
            return ("gc", "--yes")
        if kind == "drain":
            return ("drain-host", dice.choice(VM_HOSTS[:2]), *REASON, "--stop", "--yes", *SOON)
        if kind == "quarantine":
            host = dice.choice(VM_HOSTS)
            return ("quarantine-gpu", host, self._fleet.vm_machines[host].shape.cards[0].address, *REASON)
        if kind in ("onboard", "offboard"):
            tenant = f"guest-{dice.randint(1, 2)}"
            if kind == "offboard":
                there = {one["tenant"] for one in self._fleet.operator.json("list-tenants")}
                words = ("offboard-tenant", tenant, "--yes", "--delete-disks", *NOW)
                return words if tenant in there else None
            return ("onboard", str(self._tenant_file(tenant)), "--prune")
        return self._words_for_a_vm(kind)

    def _creation(self, *, is_gang: bool) -> Sequence[str]:
        dice, gpu = self._dice, self._dice.choice(GPUS)
        several: tuple[str, ...] = ("--count", "2") if dice.random() < 0.2 else ()
        if is_gang:
            several = ("--count", str(dice.randint(2, 3)), "--gang")
        options = guest_options(dice, self._number, gpu, is_alone=not several)
        create = ("create-vm", f"vm-{self._number}", "--tenant", "acme", "--gpu", gpu, *options)
        return (*create, "--network", "none", *several)

    def _words_for_a_vm(self, kind: str) -> Sequence[str] | None:
        wanted = {"delete": None, "move": None, "resize": None, "stop": VmState.RUNNING, "start": VmState.STOPPED}[kind]
        seen = self._look()
        vms = [vm for vm in seen.vms if wanted in (None, vm.state)]
        if kind == "resize":
            vms = without_nodes(vms, seen)
        if not vms or (kind == "delete" and len(vms) < 3):
            return None
        vm = self._dice.choice(vms).request
        further = {
            "delete": ("--yes", *NOW),
            "move": SOON,
            "resize": ("--gpu", self._dice.choice(GPUS), "--vcpus", str(self._dice.randint(1, 3)), "--restart", *SOON),
            "stop": ("--hold", self._dice.choice(("keep", "release")), *NOW),
        }
        return (f"{kind}-vm", vm.name, "--tenant", vm.tenant, *further.get(kind, ()))

    def _tenant_file(self, tenant: str) -> Path:
        path = self._home / f"{tenant}.yml"
        lines = ["version: 1", f"tenant: {tenant}", f"quotas: {{vms: {self._dice.randint(3, 5)}}}", "vms:"]
        for number in range(self._dice.randint(1, 2)):
            gpu = self._dice.choice(("A40-8Q", "T4-4Q"))
            size = "vcpus: 1, memory: 96MiB, network: none, disk: {size: 8MiB}"
            size += self._dice.choice(("", f", data_disks: [{{name: extra-{number}, size: 8MiB, keep: true}}]"))
            lines.append(f"  - {{name: n-{number}, {size}, gpus: ['{gpu}']}}")
        if self._dice.random() < 0.5:
            vm = "{vcpus: 1, memory: 96MiB, network: none, disk: {size: 8MiB}, gpus: [T4-4Q]}"
            lines.append(f"node_pools: [{{name: nodes, role: k3s, min: {self._dice.randint(0, 1)}, max: 2, vm: {vm}}}]")
        path.write_text("\n".join(lines) + "\n")
        return path

    def _command(self, kind: str, words: Sequence[str], how: str) -> Answer:
        usual_s = self._usual_s[kind]
        signals: list[tuple[float, int]] = []
        if how == "kill":
            signals = [(self._dice.uniform(0.05, usual_s * 1.1), signal.SIGKILL)]
        elif how == "interrupt":
            first_s = self._dice.uniform(0.15, max(usual_s, 0.2))
            second_s = first_s + self._dice.uniform(0.0, 0.4)
            signals = [(first_s, self._dice.choice(INTERRUPTS)), (second_s, self._dice.choice(INTERRUPTS))]
        began = time.monotonic()
        done = run(self._fleet.operator, *words, "--json", signals=signals)
        if done.shows_traceback:
            self._blame(f"{' '.join(words)} ({how}) showed a traceback: {done.err}")
        if how == "whole" and done.code == 0:
            self._usual_s[kind] = 0.7 * usual_s + 0.3 * (time.monotonic() - began)
        return done

    def _judge(self, kind: str, words: Sequence[str], how: str, done: Answer) -> None:
        what = {0: "done", -9: "killed", 130: "interrupted"}.get(done.code, "refused")
        self.counts[f"{kind} {what}"] += 1
        allowed = REFUSALS | FURTHER_REFUSALS.get(kind, set())
        if what == "refused" and how == "whole" and done.reference not in allowed:
            self._blame(f"{' '.join(words)} ended with {done.code}: {done.err.strip()}")

    def _fix(self, after: str, died: Answer) -> None:
        """The operator's work after a command died; then nothing may be wrong."""
        known = len(self.faults)
        done = run(self._fleet.operator, "repair", "--json")
        if done.code:
            self._blame(f"repair after {after} ended with {done.code}: {done.err.strip()} {done.out.strip()}")
        self._settle(after)
        self._open_again(after)
        if done.code == 0 and self._number % 4 == 0 and (more := self._fleet.operator.json("repair")):
            self._blame(f"a second repair after {after} found {more}")
        before = self._seen or self._look()
        self._seen = seen = self._look()
        for fault in faults(before, seen, self._fleet.vm_machines, time.time()):
            self._blame(f"after {after}: {fault}")
        with self._fleet.services() as services:
            for fault in guest_faults(services, look_at_guests(services.store), VM_HOSTS):
                self._blame(f"after {after}: {fault}")
        if len(self.faults) > known and not self._is_told:
            self._is_told = True
            events = self._fleet.operator.does("list-events", "--limit", "60").out
            _say(f"{after} ended with {died.code}:\n{died.err}\nrepair:\n{done.out}{done.err}\n{events}")

    def _settle(self, after: str) -> None:
        """The controller's next round: then each node has a VM or waits for one."""
        settled = settle(self._fleet.operator, self._look())
        if settled is not None and settled.code:
            self._blame(f"the controller's round after {after} ended with {settled.code}: {settled.err.strip()}")

    def _open_again(self, after: str) -> None:
        """Open what the command closed; nothing else may have closed a GPU."""
        with self._fleet.services() as services, services.store.reading() as session:
            restrictions = session.restrictions()
        for one in restrictions:
            if one.reason.removeprefix("draining: ") != REASON[1]:
                self._blame(f"after {after}: {one.host} {one.device} is in {one.kind}: {one.reason}")
            if one.kind is RestrictionKind.QUARANTINE:
                self._fleet.operator.does("unquarantine-gpu", one.host, one.device, *REASON)
            else:
                self._fleet.operator.does("uncordon-host", one.host, *REASON)
                self.counts[f"{one.kind} opened"] += 1

    def _sweep(self) -> None:
        """Delete everything: every host is as it was before the first command."""
        operator = self._fleet.operator
        self._restart_all()
        drop_snapshots(operator, self._look_at_guests())
        delete_pools(operator)
        for tenant in [one["tenant"] for one in operator.json("list-tenants")]:
            names = [vm.request.name for vm in self._look().vms if vm.request.tenant == tenant]
            if names:
                operator.does("delete-vm", *names, "--tenant", tenant, "--yes", *NOW)
        for disk in operator.json("list-disks"):
            operator.does("delete-disk", disk["name"], "--tenant", disk["tenant"], "--yes")
        for words in (("repair",), ("gc", "--yes")):
            found = json.loads(operator.does(*words, "--json").out)
            if words == ("repair",) and found:
                self._blame(f"in the end repair finds {found}")
        self._fleet.declare(OFF, OFF)
        operator.does("apply-hosts", "--no-boot", "--reset")
        for leak in self._fleet.leaks():
            self._blame(leak)
        self._seen = seen = self._look()
        guests = self._look_at_guests()
        if seen.vms or seen.leases or seen.queue or seen.nodes or seen.node_pools or guests.volumes or guests.ports:
            self._blame(f"in the end the store has {seen}, {guests}")
        self.counts["sweeps"] += 1
        self._upgrade()
        _say(f"{self._number} commands, {sum(self.counts.values())} answers, {len(self.faults)} faults")

    def _restart_all(self) -> None:
        """Restart what runs: everything that waited for a start is there then, and nothing else."""
        for vm in self._look().vms:
            if vm.state is VmState.RUNNING:
                words = ("restart-vm", vm.request.name, "--tenant", vm.request.tenant, *NOW)
                done = run(self._fleet.operator, *words, "--json")
                if done.code and done.reference not in REFUSALS:
                    self._blame(f"{' '.join(words)} ended with {done.code}: {done.err.strip()}")
        with self._fleet.services() as services:
            for fault in started_faults(services, look_at_guests(services.store), VM_HOSTS):
                self._blame(f"after a restart: {fault}")

    def _look_at_guests(self) -> GuestSeen:
        with self._fleet.services() as services:
            return look_at_guests(services.store)

    def _upgrade(self) -> None:
        """The next version upgrades a store and is killed: its next command finds every row."""
        with tempfile.TemporaryDirectory(dir=self._home) as folder:
            operator = replace(self._fleet.operator, database=f"sqlite:///{folder}/store.db")
            wanted = next_version.fill_store(operator.database)
            for _try in range(self._dice.randint(1, 3)):
                kill = [(self._dice.uniform(0.01, 0.3), signal.SIGKILL)]
                done = run(operator, "list-vms", module="tests.next_version", signals=kill)
                self.counts[f"upgrade {'killed' if done.code == -9 else 'done'}"] += 1
            listed = json.loads(run(operator, "list-vms", "--json", module="tests.next_version").out)
            if sorted(f"{one['tenant']}/{one['name']}" for one in listed) != wanted:
                self._blame(f"an upgrade was killed: {listed} of {wanted} are left")

    def _look(self) -> Seen:
        with self._fleet.services() as services:
            return look(services.store)

    def _blame(self, fault: str) -> None:
        self.faults.append(fault)
        _say(f"FAULT: {fault}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def databases(only: str | None = None) -> Iterator[list[tuple[str, str | None]]]:
    """The kinds of store, or `only` one, each with its URL; None for a file in the fleet's own folder."""
    if only == STORES[0]:
        yield [(STORES[0], None)]
        return
    programs = find_programs()
    if programs is None:
        raise SystemExit("no PostgreSQL server is installed: apt-get install postgresql")
    with LocalPostgres(programs) as server, server.create_database() as url:
        both = list(zip(STORES, (None, url), strict=True))
        yield both if only is None else both[1:]


def main() -> int:
    """Bring a fleet up for each kind of store, try it, and take it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--commands", type=int, help="so many for each kind of store, in place of minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sweep", type=int, default=40, help="commands until everything is deleted")
    parser.add_argument("--store", choices=STORES, help="one kind of store alone")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))

    told: dict[str, Any] = {"seed": given.seed, "minutes": given.minutes}
    failed = False
    with databases(given.store) as stores:
        for kind, url in stores:
            with tempfile.TemporaryDirectory(prefix="kill-", dir="/tmp") as name:
                fleet = ProofFleet(Path(name), url)
                try:
                    dice = random.Random(given.seed * 2 + STORES.index(kind))
                    test = KillTest(fleet, Path(name), dice, sweep_every=given.sweep)
                    test.run(given.minutes * 60 / len(stores), given.commands)
                finally:
                    fleet.down()
            told[kind] = {"counts": dict(sorted(test.counts.items())), "faults": test.faults}
            failed = failed or bool(test.faults)
    print(json.dumps({**told, "load": round(os.getloadavg()[0], 1)}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
