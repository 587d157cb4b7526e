# SPDX-License-Identifier: Apache-2.0
"""Every command that changes hosts, whose hosts fail after one of its side effects; then `repair` and a second try.

On simulated hosts (real sshd, agent and libvirtd) whose boot units restore the layouts, or without these units; then
the operator applies the layouts after `repair`. They reboot, their libvirtd is
stopped (until the command has ended) or restarted, or their network is cut (until the command has ended): what the
host was told is then done after the command gave up. The command goes on and gets what it gets. Then `repair` must
succeed and find nothing more the second time, every VM that has shares must start, store, machines and libvirt must
agree (tests/bench/day_checks.py, tests/proof/guest_checks.py), the same command must succeed, and when all is deleted,
every host must be as it was.

The last line of stdout is JSON. The exit code is 1 when something leaked or failed.
Run it with `make fail-test`, or `python -m tests.proof.failing_hosts [--points 2] [--fault reboot] [--only create-vm]`.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.bench.day_checks import Seen, faults, look
from tests.e2e.kills import KILLED_RUN
from tests.e2e.operator import Done
from tests.proof.fleet import LAYOUT_HOSTS, LAYOUTS, OFF, VM_HOSTS, ProofFleet
from tests.proof.guest_checks import guest_faults, look_at_guests
from tests.proof.guest_commands import NETWORKS, NOW, WINDOWS, prepare
from vgpuctl.model.lease import LeaseState
from vgpuctl.model.vm import VmState

Words = tuple[str, ...]
FAULTS = ("reboot", "libvirtd", "libvirtd-restart", "network")
ACME = ("--tenant", "acme")
SIZE = ("--vcpus", "1", "--memory", "96MiB", "--network", "none", "--disk", "8MiB", "--hostname", "guest")
A40, A40_MDEV, T4 = "sim-001", "sim-002", "sim-003"
ENDED = {"not-found"}
"""What the second try of a deletion may answer: the first one was finished by `repair`."""
GUEST_FILE = """\
version: 1
tenant: guest
quotas: {{vms: 3}}
vms:
  - {{name: n-0, host: {0}, gpus: [A40-8Q], vcpus: 1, memory: 96MiB, network: none, disk: {{size: 8MiB}}}}
  - {{name: n-1, host: {1}, gpus: [T4-4Q], vcpus: 1, memory: 96MiB, network: none, disk: {{size: 8MiB}}}}
"""


def _create(name: str, gpu: str, host: str, *further: str) -> Words:
    return ("create-vm", name, *ACME, "--gpu", gpu, "--host", host, *SIZE, *further)


def _on_the_first(create: Words) -> list[Words]:
    """A creation that names no host, and gets the first one."""
    return [
        ("cordon-host", A40_MDEV, "--reason", "the test wants the first"),
        create,
        ("uncordon-host", A40_MDEV),
    ]


@dataclass(frozen=True)
class Scenario:
    """One command. before: commands that make what it works on. hosts: those that reboot.

    points: side effects after which hosts fail, evenly spread, where the command line does not say; None for all.
    """

    command: Words
    hosts: Sequence[str] = (A40,)
    before: Sequence[Words] = ()
    points: int | None = None


_WEB = _create("web", "A40-8Q", A40)
_DELETE = ("delete-vm", "web", *ACME, "--yes", *NOW)
_STOPPED = ("stop-vm", "web", *ACME, *NOW)
_APPLY = ("apply-hosts", "--limit", ",".join(LAYOUT_HOSTS), "--reset")
_GC = ("gc", "--yes", "--kind", "domain", "--kind", "volume", "--kind", "vgpu")
_LOW = ("--priority", "low", "--preemptible", "stop")
_WEB_ON_TWO = _create("web", "2*A40-8Q", A40)
_DISK = ("attach-disk", "web", "data,size=8MiB", *ACME)
_NIC = ("attach-nic", "web", NETWORKS[A40], *ACME)
_DESK = (
    *("create-vm", "web", *ACME, *WINDOWS, "--gpu", "A40-8Q", "--host", A40, "--network", "none", "--disk", "8MiB"),
    *("--data-disk", "data,size=8MiB,keep", "--vgpu-param", "frame_rate_limiter=0", "--display", "vnc"),
)
_SNAPSHOT = ("create-snapshot", "web", "first", *ACME)
_AT_ONCE = ("--priority", "high", "--preempt", "--grace", "0", "--shutdown-timeout", "0")
_ON_DEVICES: Mapping[str, Scenario] = {
    "guest: create-vm, a desktop": Scenario(_DESK),
    "guest: delete-vm, a desktop": Scenario(_DELETE, before=[_DESK]),
    "guest: move-vm, a desktop": Scenario(
        ("move-vm", "web", *ACME, "--to", A40_MDEV, "--shutdown-timeout", "0"),
        (A40, A40_MDEV),
        before=_on_the_first(tuple(word for word in _DESK if word not in ("--host", A40))),
    ),
    "guest: resize-vm": Scenario(
        ("resize-vm", "web", *ACME, "--gpu", "2*A40-8Q", "--restart", "--shutdown-timeout", "0"), before=[_WEB]
    ),
    "guest: restart-vm": Scenario(
        ("restart-vm", "web", *ACME, *NOW), before=[_WEB, ("attach-gpu", "web", "A40-8Q", *ACME)]
    ),
    "guest: stop-vm --force": Scenario(("stop-vm", "web", *ACME, "--force"), before=[_WEB]),
    "guest: rename-vm": Scenario(("rename-vm", "web", "shop", *ACME), before=[_WEB, _STOPPED]),
    "guest: attach-gpu": Scenario(("attach-gpu", "web", "A40-8Q", *ACME), before=[_WEB, _STOPPED]),
    "guest: detach-gpu": Scenario(("detach-gpu", "web", "0", *ACME, *NOW), before=[_WEB_ON_TWO, _STOPPED]),
    "guest: attach-disk": Scenario(_DISK, before=[_WEB, _STOPPED]),
    "guest: detach-disk": Scenario(("detach-disk", "web", "data", *ACME, *NOW), before=[_WEB, _STOPPED, _DISK]),
    "guest: attach-nic": Scenario(_NIC, before=[_WEB]),
    "guest: detach-nic": Scenario(
        ("detach-nic", "web", NETWORKS[A40], *ACME, "--last", *NOW), before=[_WEB, _STOPPED, _NIC]
    ),
    "guest: create-snapshot": Scenario(_SNAPSHOT, before=[_WEB, _STOPPED, _DISK]),
    "guest: revert-snapshot": Scenario(
        ("revert-snapshot", "web", "first", *ACME, "--yes"), before=[_WEB, _STOPPED, _DISK, _SNAPSHOT]
    ),
}
SCENARIOS: Mapping[str, Scenario] = {
    **{name: replace(one, points=4) for name, one in _ON_DEVICES.items()},
    "create-vm": Scenario(_WEB),
    "create-vm, mdevs": Scenario(_create("web", "2*T4-2Q", T4), (T4,)),
    "create-vm, mdev on a VF": Scenario(_create("web", "A40-24Q", A40_MDEV), (A40_MDEV,)),
    "create-vm, whole card": Scenario(_create("web", "passthrough:nvidia-geforce-rtx-3090", T4), (T4,)),
    "create-vm, two": Scenario(_create("web", "A40-8Q", A40, "--count", "2")),
    "create-vm, gang": Scenario(_create("web", "A40-8Q", A40, "--count", "2", "--gang")),
    "create-vm, preempting": Scenario(
        _create("urgent", "A40-24Q", A40, *_AT_ONCE),
        before=[_create(f"low-{number}", "A40-24Q", A40, *_LOW) for number in (1, 2)],
    ),
    "delete-vm": Scenario(_DELETE, before=[_WEB]),
    "delete-vm, whole card": Scenario(
        _DELETE, (T4,), before=[_create("web", "passthrough:nvidia-geforce-rtx-3090", T4)]
    ),
    "stop-vm": Scenario(_STOPPED, before=[_WEB]),
    "stop-vm, releasing": Scenario((*_STOPPED, "--hold", "release"), before=[_WEB]),
    "start-vm": Scenario(("start-vm", "web", *ACME), before=[_WEB, _STOPPED]),
    "start-vm, again placed": Scenario(("start-vm", "web", *ACME), before=[_WEB, (*_STOPPED, "--hold", "release")]),
    "apply-hosts, MIG and vGPUs": Scenario(_APPLY, LAYOUT_HOSTS, before=[("declare", "3", "2")]),
    "apply-hosts, all off": Scenario(
        _APPLY,
        LAYOUT_HOSTS,
        before=[("declare", "2", "1"), _APPLY, ("declare", "0", "0")],
    ),
    "onboard": Scenario(("onboard", "{home}/guest.yml", "--prune"), (A40, T4)),
    "offboard-tenant": Scenario(
        ("offboard-tenant", "guest", "--yes", *NOW), (A40, T4), before=[("onboard", "{home}/guest.yml")]
    ),
    "drain-host": Scenario(
        ("drain-host", A40, "--reason", "test", "--yes", "--shutdown-timeout", "0"),
        (A40, A40_MDEV),
        before=_on_the_first(("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SIZE)),
    ),
    "repair": Scenario(("repair",), before=[_WEB, ("reboot", A40)]),
    "repair, stopped": Scenario(("repair",), before=[_WEB, _STOPPED, ("reboot", A40)]),
    "gc": Scenario(_GC, before=[_WEB, _STOPPED, ("forget",)]),
}


class FailingHosts:
    """One fleet and one store. fault: one of FAULTS. restores: the hosts restore their layouts when they boot."""

    def __init__(self, fleet: ProofFleet, home: Path, fault: str, *, restores: bool) -> None:
        self._restores = restores
        self._fault = fault
        self._fleet = fleet
        self._home = home
        self.operator = fleet.operator
        self.faults: list[str] = []
        self.points: dict[str, int] = {}
        (home / "guest.yml").write_text(GUEST_FILE.format(A40, T4))
        self._before = self._state()

    def run(self, name: str, scenario: Scenario, most: int | None, after: str | None) -> None:
        """Let the hosts fail after each side effect of a command, or `most` of them evenly spread, or `after` one."""
        most = most or scenario.points
        self._prepare(scenario)
        done = self._cut(scenario, 0)
        assert done.code == 0, f"{name}: {done.err}"
        count = len(done.err.splitlines()[-1].split())
        self._clear(name)
        chosen: Sequence[int | str] = range(1, count + 1)
        if after is not None:
            chosen = [after]
        elif most is not None and most < count:
            chosen = [1 + (2 * number + 1) * count // (2 * most) for number in range(most)]
        for number in chosen:
            began = time.monotonic()
            where = f"{name}, {self._fault} after side effect {number} of {count}"
            self._prepare(scenario)
            done = self._cut(scenario, number)
            said = done.err.strip().splitlines()[-2:-1]
            self._judge(where, scenario, done)
            self._clear(where)
            _say(f"{where}: ended with {done.code} {said}, {time.monotonic() - began:.1f} s")
        self.points[name] = len(chosen)

    def _words(self, words: Words) -> Words:
        return tuple(word.format(home=self._home) for word in words)

    def _prepare(self, scenario: Scenario) -> None:
        for words in scenario.before:
            if words[0] == "declare":
                layouts = [LAYOUTS[key][int(index)] for key, index in zip(sorted(LAYOUTS), words[1:], strict=True)]
                self._fleet.declare(*layouts)
            elif words[0] == "reboot":
                self._fleet.reboot(words[1])
            elif words[0] == "forget":
                self._forget()
            else:
                self.operator.does(*self._words(words))

    def _forget(self) -> None:
        """Lose the rows of every VM, which is off: what hosts have of them is garbage."""
        with self._fleet.services() as services, services.store.transaction() as session:
            for vm in session.vms():
                for lease in session.leases(vm_uuid=vm.uuid):
                    session.set_lease_state(lease.id, LeaseState.GONE)
                session.delete_vm(vm.uuid)

    def _cut(self, scenario: Scenario, number: int | str) -> Done:
        operator = self._fleet.with_faults(*scenario.hosts)
        if self._fault == "network":
            limits = {"VGPUCTL_CONNECT_TIMEOUT": "2", "VGPUCTL_COMMAND_TIMEOUT": "2"}
            operator = replace(operator, variables={**operator.variables, **limits})
        done = operator.run(f"{self._fault}:{number}", *self._words(scenario.command), program=KILLED_RUN)
        self._fleet.end_faults()
        return done

    def _judge(self, where: str, scenario: Scenario, done: Done) -> None:
        before = self._look()
        repaired = self.operator.run("repair")
        if repaired.code:
            self._blame(f"{where}: repair ended with {repaired.code}: {repaired.err}{repaired.out}\nafter {done.err}")
            return
        if more := self.operator.json("repair"):
            self._blame(f"{where}: a second repair found {more}\nafter {done.err}")
        if scenario.command[0] != "gc":
            self._check(f"{where}, repaired", before)
        self._apply_by_hand(where)
        self._start_all(where)
        if scenario.command[0] != "gc":  # garbage that it has not reached yet is no fault
            self._check(where, before)
        again = self.operator.run(*self._words(scenario.command), "--json")
        references = [json.loads(line)["error"]["reference"] for line in again.err.splitlines() if '{"error"' in line]
        if again.code and not set(references) & ENDED:
            self._blame(f"{where}: the second try ended with {again.code}: {again.err}\nafter {done.err}")
        self._start_all(where)
        self._check(f"{where}, second try", before)

    def _apply_by_hand(self, where: str) -> None:
        """Bring the hosts of VMs into their layouts, where no unit has done so."""
        if not self._restores:
            done = self.operator.run("apply-hosts", "--no-boot", "--limit", ",".join(VM_HOSTS))
            if done.code:
                self._blame(f"{where}: the layout is not reached: {done.err}{done.out}")

    def _start_all(self, where: str) -> None:
        """Start the VMs that a reboot ended: they kept their shares."""
        seen = self._look()
        for vm in seen.vms:
            if vm.state is VmState.STOPPED and any(lease.vm_uuid == vm.uuid for lease in seen.leases):
                done = self.operator.run("start-vm", vm.request.name, "--tenant", vm.request.tenant)
                if done.code:
                    self._blame(f"{where}: {vm.printed_name} does not start: {done.err}")

    def _check(self, where: str, before: Seen) -> None:
        for fault in faults(before, self._look(), self._fleet.vm_machines, time.time()):
            self._blame(f"{where}: {fault}")
        with self._fleet.services() as services:
            for fault in guest_faults(services, look_at_guests(services.store), VM_HOSTS):
                self._blame(f"{where}: {fault}")

    def _clear(self, where: str) -> None:
        """Delete everything: every host is as it was before the first command."""
        operator = self.operator
        operator.does("uncordon-host", A40, "--force")
        for vm in self._look().vms:
            operator.does("delete-vm", vm.request.name, "--tenant", vm.request.tenant, "--yes", *NOW)
        for disk in operator.json("list-disks"):
            operator.does("delete-disk", disk["name"], "--tenant", disk["tenant"], "--yes")
        if any(one["tenant"] == "guest" for one in operator.json("list-tenants")):
            operator.does("offboard-tenant", "guest", "--yes", *NOW)
        if where.startswith("apply"):
            self._fleet.declare(OFF, OFF)
            operator.does(*_APPLY)
        self._apply_by_hand(where)
        if found := operator.json("gc", "--yes"):
            _say(f"{where}: gc found {found}")
        now = self._state()
        for host, was in self._before.items():
            for key in was:
                if was[key] != now[host][key]:
                    self._blame(f"{where}: {host}: {key} was {was[key]}, is {now[host][key]}")
        seen = self._look()
        if seen.vms or seen.leases or seen.queue or seen.open_operations:
            self._blame(f"{where}: in the end the store has {seen}")
        with self._fleet.services() as services:
            guests = look_at_guests(services.store)
        if guests.volumes or guests.ports or any(one.released_at is None for one in guests.seats):
            self._blame(f"{where}: in the end the store has {guests}")

    def _state(self) -> dict[str, Any]:
        by_boot = ("boot_id", "booted_at")
        return {
            host: {key: value for key, value in seen.items() if key not in by_boot}
            for host, seen in self._fleet.state().items()
        }

    def _look(self) -> Seen:
        with self._fleet.services() as services:
            return look(services.store)

    def _blame(self, fault: str) -> None:
        self.faults.append(fault)
        _say(f"FAULT: {fault}")


@contextmanager
def prepared_fleet(home: Path, *, restores: bool) -> Iterator[ProofFleet]:
    """A fleet with what the scenarios need, until the block ends."""
    fleet = ProofFleet(home, restores=restores)
    try:
        fleet.operator.does("create-tenant", "acme")
        prepare(fleet, home, seats=10)
        yield fleet
    finally:
        fleet.down()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Bring a fleet up, try it, and take it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--points", type=int, help="side effects per command; default: all, and 4 of the commands on one VM's devices"
    )
    parser.add_argument("--after", metavar="NAME", help="only after this side effect, for example define")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="of the hosts; several times, default all")
    parser.add_argument("--only", action="append", metavar="NAME", help="scenarios that begin with this; several times")
    parser.add_argument("--without-units", action="store_true", help="the hosts restore nothing when they boot")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    told: dict[str, Any] = {}
    chosen = {name: one for name, one in SCENARIOS.items() if given.only is None or name.startswith(tuple(given.only))}
    with (
        tempfile.TemporaryDirectory(prefix="failing-", dir="/tmp") as name,
        prepared_fleet(Path(name), restores=not given.without_units) as fleet,
    ):
        for fault in given.fault or FAULTS:
            test = FailingHosts(fleet, Path(name), fault, restores=not given.without_units)
            for title, scenario in chosen.items():
                test.run(title, scenario, given.points, given.after)
            told[fault] = {"points": test.points, "faults": test.faults}
    print(json.dumps({**told, "load": round(os.getloadavg()[0], 1)}))
    return 1 if any(one["faults"] for one in told.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
