# SPDX-License-Identifier: Apache-2.0
"""A day of many tenants on simulated hosts, replayed in minutes; after every step it is checked what must hold.

The commands are the product's own (create-vm also with --queue, --for, --gang and --reservation, delete-vm, stop-vm,
start-vm, controller --once, reserve and so on), each in a process of its own whose clock says the step's time. Some are
killed by kill -9 after one of their side effects; the next command, or repair, must finish the job.

After each step: no card over-filled by the catalogue's rules, no quota exceeded, ledger = leases = devices = processes,
on every host as its own files say, and as the agent tells on the hosts that changed; on all hosts every --look steps.
At the end everything is deleted, and every host is as it was.

The last line of stdout is JSON. The exit code is 1 when something did not hold.
Run it with `python -m tests.bench.day_replay --hosts 100 --hours 24 --vms 600 [--seed 1]`.
"""

import argparse
import dataclasses
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import vgpuctl_lab as lab
from tests.bench.day_checks import Seen, faults, in_machine, look, told_by_agent
from tests.bench.day_plan import BEGIN, POOL, ROUND, Day, Scale, Step, plan_day
from tests.e2e.kills import KILLED_RUN
from tests.e2e.operator import Done, Operator
from vgpuctl.hosts.fleet import run_on_hosts
from vgpuctl.model.vm import VmState
from vgpuctl.usecases.running.services import Services
from vgpuctl.wiring import Settings, open_services
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.state import MachineFolder

MIX = "a40:45,h100-pcie:25,t4*2:20,rtx-3090*2:10"
MOST_FAULTS = 30

_REFUSED = {
    "create": ("no-capacity", "quota-exceeded"),
    "again": ("no-capacity", "quota-exceeded"),
    "gang": ("no-capacity", "quota-exceeded"),
    "use": ("no-capacity", "quota-exceeded", "state"),
    "start": ("no-capacity", "quota-exceeded"),
    "reserve": ("no-capacity", "quota-exceeded"),
    "pool": ("quota-exceeded",),
}
"""By kind of step, the errors that are an answer and not a fault."""

_KILLED_AGAIN = {"delete": ("not-found",), "gang": ("state",), "drop": ("not-found",)}
"""What a command may say beside that when it is given again after it was killed: it had done its work already."""


class Replay:
    """One day on one fleet that is up."""

    def __init__(self, folder: lab.LabFolder, home: Path, *, look_every: int, tell: Callable[[str], None]) -> None:
        inventory = simulated_folder(folder).inventory
        self._operator = Operator(home, inventory, f"sqlite:///{home}/store.db")
        self._machines = {
            name: MachineFolder(simulated_folder(folder).host(name)) for name in lab.simulated.names(folder=folder)
        }
        self._settings = Settings([str(inventory)], self._operator.database, command_timeout_s=300)
        self._look_every = look_every
        self._tell = tell
        self._now = BEGIN
        self._first_states = self._states()
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.spent: dict[str, list[float]] = defaultdict(list)
        self.faults: list[str] = []
        self._standing: set[str] = set()

    def run(self, day: Day) -> dict[str, Any]:
        """Play it. Returns what the JSON line says."""
        began = time.perf_counter()
        with open_services(self._settings, lambda _text: None, clock=lambda: self._now) as services:
            self._set_up(day)
            self._tell(f"{len(self._machines)} hosts known, {len(day.steps)} steps planned")
            seen = look(services.store)
            for number, step in enumerate(day.steps, 1):
                self._now = max(self._now, step.at)
                seen = self._step(services, step, seen, number)
                if number % 25 == 0:
                    self._report(number, len(day.steps), seen, time.perf_counter() - began)
                if len(self.faults) >= MOST_FAULTS:
                    break
            self._end(services, seen)
        return {
            "hosts": len(self._machines),
            "steps": sum(self.counts[name] for name in self.counts if name.startswith("step ")),
            "counts": dict(sorted(self.counts.items())),
            "refused": dict(sorted(self.refused.items())),
            "median_s": {kind: round(statistics.median(all_), 2) for kind, all_ in sorted(self.spent.items())},
            "total_s": {kind: round(sum(all_), 1) for kind, all_ in sorted(self.spent.items())},
            "wall_s": round(time.perf_counter() - began, 1),
            "faults": self.faults,
        }

    def machine_shapes(self) -> list[Any]:
        """The hosts' cards."""
        return [machine.shape for machine in self._machines.values()]

    def _set_up(self, day: Day) -> None:
        for tenant in day.tenants:
            self._does("create-tenant", tenant.name, *tenant.quotas)
        if day.pool:
            self._does("create-host-pool", POOL, "--hosts", ",".join(day.pool))
            self._does("grant-host-pool", POOL, *day.granted)
        self._does("list-gpus", "--refresh")

    def _step(self, services: Services, step: Step, before: Seen, number: int) -> Seen:
        states = {name: machine.state() for name, machine in self._machines.items()}
        if not self._is_possible(step, before):
            return before
        if step.kind == "delete" and before.vm(step.tenant, step.name) is None:
            leave = ("leave-queue", "--yes", step.name, "--tenant", step.tenant)
            step = dataclasses.replace(step, kind="leave", arguments=leave, kill=0)
        self._perform(step)
        self.counts[f"step {step.kind}"] += 1
        began = time.perf_counter()
        seen = look(services.store)
        found = list(faults(before, seen, self._machines, self._now))
        if step.kind == "round":
            over = [vm for vm in seen.vms if vm.state is VmState.RUNNING and (vm.ends_at or self._now + 1) <= self._now]
            found += [f"{vm.domain_name} runs on after its end" for vm in over]
            # A node that this round itself has let go, such as a preempted one, is deleted in the next.
            late = [one for one in seen.nodes if one.is_leaving and (one.leaving_at or 0.0) < self._now]
            found += [f"node {one.printed_name} still leaves after a round" for one in late]
        changed = [name for name, machine in self._machines.items() if machine.state() is not states[name]]
        changed += [lease.host for lease in {*seen.leases} ^ {*before.leases} if lease.host not in changed]
        names = list(self._machines) if number % self._look_every == 0 else sorted(set(changed))
        found += self._ask_agents(services, names)
        for one in found:
            if one not in self._standing:
                self._blame(f"step {number}, {' '.join(step.arguments)} (kill {step.kill}): {one}")
        self._standing = set(found)
        self.counts["most VMs"] = max(self.counts["most VMs"], len(seen.vms))
        self.counts["most nodes"] = max(self.counts["most nodes"], len(seen.nodes))
        self.counts["longest queue"] = max(self.counts["longest queue"], len(seen.queue))
        self.spent["check"].append(time.perf_counter() - began)
        return seen

    def _is_possible(self, step: Step, seen: Seen) -> bool:
        """True if what a step works on is there, as far as the day went."""
        vm = seen.vm(step.tenant, step.name)
        if step.kind in ("delete", "again"):
            return vm is not None or seen.waits(step.tenant, step.name)
        if step.kind in ("stop", "start"):
            return vm is not None and vm.state is (VmState.RUNNING if step.kind == "stop" else VmState.STOPPED)
        if step.kind in ("scale", "resume", "suspend", "drop"):
            return any((one.tenant, one.name) == (step.tenant, step.name) for one in seen.node_pools)
        if step.kind in ("use", "cancel"):
            return any((one.tenant, one.name) == (step.tenant, step.name) for one in seen.reservations)
        return True

    def _perform(self, step: Step) -> None:
        """Give the command; when it was killed, have it repaired as an operator would, and give it again."""
        kind, words = step.kind, step.arguments
        done = self._run(kind, words, kill=step.kill)
        allowed = _REFUSED.get(kind, ())
        if done.code == -9:
            self.counts[f"killed {kind}"] += 1
            is_fixed = kind in ("create", "gang") or step.kill % 2 == 1
            if is_fixed:
                self._fix(step)
            done = self._run(kind, words, kill=0)
            allowed = (*allowed, *_KILLED_AGAIN.get(kind, ()))
            if done.code and not is_fixed:
                self._fix(step)
        if done.code:
            reference = _reference(done)
            self.refused[f"{kind}: {reference}"] += 1
            if reference not in allowed:
                self._blame(f"{' '.join(words)} (kill {step.kill}) at {self._now:.0f}: {done.err.strip()}")
        elif kind in ("create", "gang", "use", "round"):
            self._count(kind, json.loads(done.out))

    def _fix(self, step: Step) -> None:
        """The operator's work after a command died."""
        repairing = ("repair",) if step.kill % 3 else ROUND
        done = self._run("fix", repairing, kill=0)
        if done.code:
            self._blame(f"{' '.join(repairing)} after {' '.join(step.arguments)} (kill {step.kill}): {done.err}")

    def _count(self, kind: str, told: Any) -> None:
        if kind == "round":
            self.counts.update(f"controller {one['outcome'].partition(':')[0]}" for one in told)
            for one in told:
                if "failed" in one["outcome"]:
                    self._blame(f"controller at {self._now:.0f}: {one}")
            return
        for one in told:
            self.counts["queued" if one.get("queued") else "created"] += 1
            self.counts["gave way at create-vm"] += len(one.get("victims", ()))

    def _end(self, services: Services, seen: Seen) -> None:
        """Delete everything, and find the hosts as they were."""
        self._now += 60
        for pool in seen.node_pools:
            self._does("delete-node-pool", pool.name, "--tenant", pool.tenant, "--yes", "--drained", "--timeout", "0")
        seen = look(services.store)
        for entry in seen.queue:
            self._does("leave-queue", "--yes", entry.request.name, "--tenant", entry.request.tenant)
        by_tenant: dict[str, list[str]] = defaultdict(list)
        for vm in seen.vms:
            by_tenant[vm.request.tenant].append(vm.request.name)
        for tenant, names in by_tenant.items():
            self._does("delete-vm", *names, "--tenant", tenant, "--yes", "--timeout", "0")
        for kept in seen.reservations:
            self._does("cancel-reservation", "--yes", kept.name, "--tenant", kept.tenant)
        for words in (("repair",), ROUND):
            if (found := json.loads(self._does(*words).out)) != []:
                self.faults.append(f"at the end {' '.join(words)} finds {found}")
        left = look(services.store)
        self.faults += faults(seen, left, self._machines, self._now)
        if left.vms or left.leases or left.queue or left.reservations or left.nodes:
            self.faults.append(f"at the end the store has {left.vms}, {left.leases}, {left.queue}")
        for name, state in self._states().items():
            was = self._first_states[name]
            self.faults += [f"{name}: {key} was {was[key]}, is {state[key]}" for key in was if was[key] != state[key]]
        self.faults += self._ask_agents(services, list(self._machines))
        for one in run_on_hosts(list(self._machines), lambda name: services.host(name).hypervisor.domains(), forks=4):
            if one.error is not None or one.value:
                self.faults.append(f"at the end libvirt of {one.name} has {one.error or one.value}")
        with services.store.reading() as session:
            self.counts.update(f"event {event.kind}" for event in session.events(2**31))

    def _ask_agents(self, services: Services, names: Sequence[str]) -> list[str]:
        """Hosts whose agent tells other devices than the machine has, which were compared with the leases."""
        found = []
        for one in run_on_hosts(names, lambda name: services.host(name).agent.facts(), forks=4):
            self.counts["agent asked"] += 1
            if one.error is not None or one.value is None:
                services.forget_host(one.name)
                found.append(f"{one.name} does not answer: {one.error}")
            elif told_by_agent(one.value) != (made := in_machine(self._machines[one.name])):
                found.append(f"{one.name}: the agent tells {told_by_agent(one.value)}, the machine has {made}")
        return found

    def _states(self) -> dict[str, dict[str, Any]]:
        """Every machine's state, without counters that only go up; a card without VFs has none."""
        found = {}
        for name, machine in self._machines.items():
            state = dataclasses.asdict(machine.state().lasting())
            state["vf_counts"] = {card: count for card, count in state["vf_counts"].items() if count}
            found[name] = state
        return found

    def _blame(self, fault: str) -> None:
        self.faults.append(fault)
        self._tell(fault)

    def _does(self, *words: str) -> Done:
        done = self._run("other", words, kill=0)
        if done.code:
            raise SystemExit(f"vgpuctl {' '.join(words)} ended with {done.code}: {done.err}")
        return done

    def _run(self, kind: str, words: Sequence[str], *, kill: int) -> Done:
        began = time.perf_counter()
        operator = dataclasses.replace(self._operator, variables={"VGPUCTL_TESTS_NOW": repr(self._now)})
        done = operator.run(str(kill), *words, "--json", program=KILLED_RUN)
        self.spent[kind].append(time.perf_counter() - began)
        return done

    def _report(self, number: int, steps: int, seen: Seen, wall_s: float) -> None:
        at = datetime.fromtimestamp(self._now, UTC).strftime("%d %H:%M")
        running = sum(vm.state is VmState.RUNNING for vm in seen.vms)
        self._tell(
            f"{number}/{steps} {at} {running} of {len(seen.vms)} VMs run, {len(seen.leases)} shares, "
            f"{len(seen.queue)} wait, {len(self.faults)} faults, {wall_s:.0f} s"
        )


def _reference(done: Done) -> str:
    lines = [line for line in done.err.splitlines() if line.startswith('{"error"')]
    return str(json.loads(lines[-1])["error"]["reference"]) if lines else "usage"


def main() -> int:
    """Bring a fleet up, replay a day on it, and take it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--mix", default=MIX)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--vms", type=int, default=600, help="VMs (and gangs) that are asked for in this time")
    parser.add_argument("--tenants", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--round", type=float, default=600.0, help="seconds between rounds of the controller")
    parser.add_argument("--killed", type=float, default=0.08, help="part of the commands that are killed")
    parser.add_argument("--life", type=float, default=4.0, help="mean hours that a VM is wanted")
    parser.add_argument("--clusters", type=int, default=0, help="node pools of Kubernetes and Slurm clusters in turn")
    parser.add_argument("--look", type=int, default=200, help="steps between looks at all hosts through the agent")
    given = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="day-", dir="/tmp") as name:
        home = Path(name)
        folder = lab.LabFolder(home / "lab")
        lab.simulated.up(given.hosts, mix=given.mix, folder=folder, say=tell)
        try:
            replay = Replay(folder, home, look_every=given.look, tell=tell)
            life_s = given.life * 3600
            scale = Scale(given.hours, given.vms, given.tenants, given.round, given.killed, life_s, given.clusters)
            told = replay.run(plan_day(replay.machine_shapes(), scale, given.seed))
        finally:
            lab.simulated.down(folder=folder)
    print(json.dumps({"seed": given.seed, "hours": given.hours, "load": round(os.getloadavg()[0], 1), **told}))
    return 1 if told["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
