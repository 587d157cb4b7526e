# SPDX-License-Identifier: Apache-2.0
"""Live moves and suspensions that are cut short everywhere; then `repair`, and nothing may be lost or left over.

On three simulated hosts (real sshd, agent and libvirtd). Each round one VM moves live, is suspended or resumed, and one
thing goes wrong: the command is killed after a side effect or at a moment; libvirtd, the network, sshd or the power of
one of the two hosts fails, or the agents there are killed; a port is closed; the store is locked. In half of the rounds
the memory is on its way then. When the hosts are back and `repair` has run: each VM runs on one host at most, and none
is lost but by the power of its own host; store, libvirt, machines and quotas agree (tests/bench/day_checks.py,
tests/proof/guest_checks.py); nothing is reserved, in flight, or garbage. In the end nothing of the VMs is left.

The first fault ends it, with the exit code 1. `python -m tests.proof.moves --rounds 60 [--seed 1]`
"""

import argparse
import contextlib
import dataclasses
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

import vgpuctl_lab as lab
from tests.bench.day_checks import Seen, faults, look
from tests.e2e.kills import KILLED_RUN
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.proof.answers import Answer, run
from tests.proof.guest_checks import guest_faults, look_at_guests, started_faults
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.usecases.running.services import Services
from vgpuctl.wiring import Settings, open_services

HOSTS = ("sim-001", "sim-002", "sim-003")
ACME = ("--tenant", "acme")
SIZE = ("--vcpus", "1", "--memory", "96MiB", "--network", "none")
VMS = {
    "web": ("--gpu", "A40-8Q", "--disk", "8MiB", "--hostname", "h"),
    "db": ("--gpu", "A40-8Q"),
    "two": ("--gpu", "A40-8Q", "--disk", "8MiB"),
    "plain": ("--disk", "8MiB"),
}
NOW = ("--timeout", "0")
AT_EFFECT = ("kill", "int", "reboot", "libvirtd", "libvirtd-restart", "network")
AT_MOMENT = ("kill", "reboot", "libvirtd", "libvirtd-restart", "network", "sshd", "agent")
BEFORE = ("move-port", "move-refused", "store")
_NOT_BEGUN = {"state", "no-capacity"}
"""Answers of commands that found at once that they cannot work now: such a round is no point."""
_COPYING_S, _LOCKED_S = 2, 17.0
"""A command waits 15 s for its store."""
_USUAL_S = {"move": 3.5, "suspend": 0.6, "resume": 0.9}


class Fault(Exception):
    """What does not hold, in words."""


class MovesProof:
    """One fleet, one store, and rounds."""

    def __init__(self, fleet: LayoutFleet, dice: random.Random) -> None:
        self._fleet, self._dice = fleet, dice
        limits = {"VGPUCTL_CONNECT_TIMEOUT": "2", "VGPUCTL_COMMAND_TIMEOUT": "8"}
        self._patient = fleet.operator
        self._hurried = dataclasses.replace(fleet.operator, variables={**fleet.operator.variables, **limits})
        self._effects = {"move": 12, "suspend": 5, "resume": 6}
        self.points: Counter[str] = Counter()

    def prepare(self) -> None:
        """Hosts in their layout, and VMs that run."""
        folder = self._fleet.operator.inventory / "group_vars"
        folder.mkdir()
        (folder / "all.yml").write_text(yaml.safe_dump({"vgpu_moves": {"network": "trusted", "bandwidth_mbps": 200}}))
        vgpu = {"gpus": [{"match": "all", "kind": "vgpu"}]}
        self._fleet.declare(**{host.replace("-", "_"): vgpu for host in HOSTS})
        self._patient.does("apply-hosts", "--reset")
        self._patient.does("create-tenant", "acme")
        self._patient.does("set-quota", "acme", f"vms={len(VMS)}")
        for name, options in VMS.items():
            self._patient.does("create-vm", name, *ACME, *SIZE, *options)

    def round(self, number: int) -> None:
        """Cut one command short, repair, and look. Raises Fault."""
        before = self._look()
        vm = self._dice.choice([one for one in before.vms if one.state is VmState.RUNNING or one.is_suspended])
        kind = "resume" if vm.is_suspended else self._dice.choices(("move", "suspend"), (4, 1))[0]
        target = self._dice.choice([one for one in HOSTS if one != vm.host])
        further = ("--live-only", "--trust-hosts", "--to", target) if kind == "move" else ()
        words = (f"{kind}-vm", vm.request.name, *ACME, *further)
        which = self._dice.choice([vm.host, target] if kind == "move" else [vm.host])
        for _try in range(5):
            what, when = self._draw(kind)
            whose = (
                "" if what in ("kill", "int", "store") else " of the source" if which == vm.host else " of the target"
            )
            moment = f"after side effect {when}" if isinstance(when, str) else f"after {when:.1f} s"
            point = f"{kind}: {what}{whose} {'from the start' if what in BEFORE else moment}"
            if point not in self.points:
                break
        began = time.monotonic()
        done = self._cut(vm, words, what, when, which)
        self._mend()
        repaired = run(self._patient, "repair", "--json")
        where = f"round {number}: {' '.join(words)} on {vm.host}, {point}, ended with {done.code}"
        said = done.err.strip().splitlines()[-1:] if done.code > 0 else []
        _say(f"{where}, {time.monotonic() - began:.1f} s {said}")
        told = f"{where}\n{done.err}\nrepair:\n{repaired.out}{repaired.err}"
        if done.shows_traceback or repaired.shows_traceback:
            raise Fault(f"a traceback: {told}")
        if repaired.code:
            raise Fault(f"repair ended with {repaired.code}: {told}")
        lost_power = {which} if what == "reboot" else set()
        try:
            self._check(before, vm, kind, lost_power)
        except Fault as fault:
            raise Fault(f"{fault}\nafter {told}") from fault
        if done.reference not in _NOT_BEGUN or done.code <= 0:
            self.points[point] += 1

    def _draw(self, kind: str) -> tuple[str, str | float]:
        """What goes wrong, and after which side effect (text) or second."""
        dice = self._dice
        how = dice.choices(("effect", "moment", "before"), (5, 6, 2))[0]
        if how == "before":
            return dice.choice([one for one in BEFORE if kind == "move" or one == "store"]), ""
        if how == "effect":
            count = self._effects[kind]
            return dice.choice(AT_EFFECT), dice.choice([str(dice.randint(1, count)), *(["run"] * (kind == "move"))])
        return dice.choice(AT_MOMENT), round(dice.uniform(0.1, _USUAL_S[kind]), 2)

    def _cut(self, vm: Vm, words: Sequence[str], what: str, when: str | float, which: str) -> Answer:
        folder = self._fleet.folder
        operator = self._hurried if what in ("network", "libvirtd", "sshd") else self._patient
        if self._dice.random() < 0.5 or isinstance(when, float):
            for host in HOSTS:
                lab.faults.begin(host, "move-seconds", value=_COPYING_S, folder=folder)
        if what in BEFORE:
            if what == "store":
                return self._with_locked_store(words, self._dice.uniform(0.1, _USUAL_S[words[0].removesuffix("-vm")]))
            for host in HOSTS:
                lab.faults.begin(host, what, folder=folder)
            return run(operator, *words, "--json")
        if isinstance(when, str):
            wanted = when if what == "kill" else f"{what}:{when}"
            variables = {"VGPUCTL_TESTS_LAB": str(folder.path), "VGPUCTL_TESTS_HOSTS": which}
            operator = dataclasses.replace(operator, variables={**operator.variables, **variables})
            return run(operator, wanted, *words, module=KILLED_RUN[1])
        if what == "kill":
            return run(operator, *words, "--json", signals=[(when, signal.SIGKILL)])
        timer = threading.Timer(when, self._hurt, (what, which))
        timer.start()
        try:
            return run(operator, *words, "--json")
        finally:
            timer.cancel()
            timer.join()

    def _hurt(self, what: str, host: str) -> None:
        folder = self._fleet.folder
        kind, _, restart = what.partition("-")
        if kind == "reboot":
            lab.simulated.reboot(host, folder=folder)
        elif kind == "agent":
            for pid in _agents(self._fleet, host):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            lab.faults.begin(host, kind, folder=folder)
            if restart:
                lab.faults.clear(host, [kind], folder=folder)

    def _with_locked_store(self, words: Sequence[str], after_s: float) -> Answer:
        """Another process of the machine writes to the store for longer than a command waits, from a moment on."""
        path = self._patient.database.removeprefix("sqlite:///")
        ended = threading.Event()

        def lock() -> None:
            with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as store:
                store.execute("BEGIN IMMEDIATE")
                ended.wait(_LOCKED_S)
                store.execute("ROLLBACK")

        timer = threading.Timer(after_s, lock)
        timer.start()
        try:
            return run(self._patient, *words, "--json")
        finally:
            ended.set()
            timer.cancel()
            timer.join()

    def _mend(self) -> None:
        for host in HOSTS:
            lab.faults.clear(host, folder=self._fleet.folder)

    def _check(self, before: Seen, moved: Vm, kind: str, lost_power: set[str]) -> None:
        with self._services() as services:
            self._check_homes(services, before, moved, kind, lost_power)
        if more := self._patient.json("repair"):
            raise Fault(f"a second repair found {more}")
        if left := self._patient.json("list-reservations"):
            raise Fault(f"reservations are left: {left}")
        if garbage := self._patient.json("gc", "--dry-run"):
            raise Fault(f"gc finds {garbage}")
        # The power of a host ends its VMs and shares; a start brings both back.
        for vm in self._look().vms:
            if vm.state is VmState.STOPPED and not vm.is_suspended:
                self._patient.does("start-vm", vm.request.name, *ACME)
        seen = self._look()
        found = list(faults(before, seen, {host: self._fleet.machine(host) for host in HOSTS}, time.time()))
        with self._services() as services:
            guests = look_at_guests(services.store)
            found += [*guest_faults(services, guests, HOSTS), *started_faults(services, guests, HOSTS)]
        if seen.open_operations:
            found.append(f"{seen.open_operations} operations are open")
        if seen.quotas != before.quotas or {one.uuid for one in seen.vms} != {one.uuid for one in before.vms}:
            found.append("quotas or VMs are not those of before")
        if found:
            raise Fault("; ".join(found))

    def _check_homes(self, services: Services, before: Seen, moved: Vm, kind: str, lost_power: set[str]) -> None:
        """Each VM that ran runs on one host, which the store names; a suspended one is saved there."""
        active = [
            (domain.uuid, host)
            for host in HOSTS
            for domain in services.host(host).hypervisor.domains()
            if domain.state.is_active()
        ]
        for uuid, count in Counter(uuid for uuid, _host in active).items():
            if count > 1:
                raise Fault(f"{uuid} runs {count} times: {active}")
        now = {one.uuid: one for one in look(services.store).vms}
        for vm in before.vms:
            is_now = now[vm.uuid]
            if (vm.uuid, is_now.host) in active:
                state = services.host(is_now.host).hypervisor.state(vm.domain_name, uuid=vm.uuid)
                if is_now.state is not VmState.RUNNING or state is not DomainState.RUNNING:
                    raise Fault(f"{vm.printed_name} is {is_now.state}, its domain {state}")
                continue
            is_saved = is_now.is_suspended and (vm.is_suspended or (vm.uuid == moved.uuid and kind == "suspend"))
            if not is_saved and is_now.host not in lost_power:
                raise Fault(f"{vm.printed_name} is lost: {is_now.state} on {is_now.host}, {active}")

    def end(self) -> None:
        """Delete the VMs: nothing of them is left. Raises Fault."""
        self._patient.does("delete-vm", *VMS, *ACME, "--yes", *NOW)
        if garbage := self._patient.json("gc", "--dry-run"):
            raise Fault(f"in the end gc finds {garbage}")
        with self._services() as services:
            guests = look_at_guests(services.store)
            domains = [one.name for host in HOSTS for one in services.host(host).hypervisor.domains()]
        vgpus = [one for host in HOSTS for one in self._fleet.machine(host).state().vgpus]
        if domains or vgpus or guests.leases or guests.volumes:
            raise Fault(f"in the end there are {domains}, {vgpus}, {guests}")

    @contextlib.contextmanager
    def _services(self) -> Iterator[Services]:
        settings = Settings([str(self._patient.inventory)], self._patient.database, command_timeout_s=300)
        with open_services(settings, lambda _text: None) as services:
            yield services

    def _look(self) -> Seen:
        with self._services() as services:
            return look(services.store)


def _agents(fleet: LayoutFleet, host: str) -> list[int]:
    """The processes of agents on a simulated host: what its logins run."""
    wanted = str(fleet.machine(host).folder).encode()
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name.isdigit() and wanted in (place / "environ").read_bytes() and _is_agent(place):
                found.append(int(place.name))
    return found


def _is_agent(place: Path) -> bool:
    return b"python" in (place / "cmdline").read_bytes().split(b"\0")[0]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Bring a fleet up, run the rounds, and take it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    fault = None
    with tempfile.TemporaryDirectory(prefix="moves-", dir="/tmp") as name:
        fleet = layout_fleet(Path(name), len(HOSTS), "a40")
        proof = MovesProof(fleet, random.Random(given.seed))
        try:
            proof.prepare()
            for number in range(1, given.rounds + 1):
                proof.round(number)
            proof.end()
        except Fault as found:
            fault = str(found)
            _say(f"FAULT: {fault}")
        finally:
            lab.simulated.down(folder=fleet.folder)
    points = sum(proof.points.values())
    print(json.dumps({"rounds": points, "points": len(proof.points), "fault": fault, "seed": given.seed}))
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main())
