# SPDX-License-Identifier: Apache-2.0
"""Every dry run is followed by the run: both must end alike, and leave the same in the store.

Generated cases on five simulated hosts (VFs, mdevs, whole cards, MIG): VMs one by one and as gangs, tenants' files,
moves, drains, starts, resizes and preemption, under quotas that change. Compared are the exit code, the refusal with
its lines, what a drain says of each VM, and what is in the store afterwards (after the dry run, before that is
forgotten): each VM's host, NUMA nodes and state, its GPUs, functions and types, addresses, volumes, reservations,
networks, quotas and the queue. The use cases run in this process. Each case is tried on what the cases before it
left; now and then VMs are deleted. A dry run may change no row.

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
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.proof.fleet import LAYOUTS, ProofFleet
from tests.proof.kill_test import databases
from tests.proof.stored_rows import look, plain
from vgpuctl.catalog import read_gpu_request
from vgpuctl.errors import VgpuctlError
from vgpuctl.model.constraints import NO_CONSTRAINTS, read_constraints
from vgpuctl.model.disk import DataDisk, DiskRequest
from vgpuctl.model.network import NetworkRequest
from vgpuctl.model.tenant_file import TenantFile
from vgpuctl.model.vm import Hold, Preemption, Vm, VmRequest, VmState
from vgpuctl.usecases.maintenance.drain_host import Drained, DrainOptions, as_planned, drain_host
from vgpuctl.usecases.maintenance.uncordon_host import uncordon_host
from vgpuctl.usecases.network.delete_network import delete_network
from vgpuctl.usecases.network.vpc_changes import ObjectOutcome
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.tenant.create_tenant import create_tenant
from vgpuctl.usecases.tenant.onboard import onboard
from vgpuctl.usecases.tenant.set_quota import set_quota
from vgpuctl.usecases.vm.create_vm import USUAL, CreateOptions, create_vm
from vgpuctl.usecases.vm.delete_vm import delete_vm
from vgpuctl.usecases.vm.move_vm import move_vm
from vgpuctl.usecases.vm.preemption_consent import Consent
from vgpuctl.usecases.vm.resize_vm import NewSize, ResizeOptions, resize_vm
from vgpuctl.usecases.vm.start_vm import start_vm
from vgpuctl.usecases.vm.stop_vm import stop_vm

TENANTS = ("acme", "umbrella")
HOSTS = ("sim-001", "sim-002", "sim-003", "sim-004", "sim-005")
CASES = {"one by one": 8, "gang": 4, "preemption": 2, "tenant file": 4, "move": 4, "drain": 2, "start": 4, "resize": 4}
"""The kinds of cases, and how often each comes."""
MOST_VMS = 14
"""With so many, some are deleted before the next case."""
_GPUS = (
    *(
        "A40-4Q",
        "A40-8Q",
        "A40-8Q",
        "A40-8Q",
        "A40-12Q",
        "A40-24Q",
        "A40-48Q",
        "2*A40-12Q",
        "T4-4Q",
        "T4-4Q",
        "2*T4-2Q",
    ),
    *("T4-16Q", "L40S-8Q", "L40S-8Q", "L40S-24Q", "H100-3-40C", "H100-2-20C", "H100-2-20C", "passthrough:A40"),
    *("passthrough:nvidia-geforce-rtx-3090", "memory>=16GiB", "memory>=4GiB,series=Q", "memory>=4GiB,series=Q"),
)
_TYPES = {
    "sim-001": ("A40-8Q", "A40-24Q", "A40-4Q"),
    "sim-002": ("A40-8Q", "A40-12Q"),
    "sim-003": ("T4-4Q", "T4-2Q", "passthrough:nvidia-geforce-rtx-3090"),
    "sim-004": ("H100-3-40C", "H100-2-20C"),
    "sim-005": ("L40S-8Q",),
}
_QUOTAS = ("vms", "gpus", "vcpus", "memory", "shares", "shares:A40-8Q", "framebuffer", "disk")
_TEST_DRIVER = "Empty cpu list for pinning"
"""libvirt's test driver knows eight CPUs to pin to; a VM that is to float over others does not start on it."""


class DryRuns:
    """Tries cases on a fleet. endings: how many of each kind ended how. differences: in words, with the case."""

    def __init__(self, fleet: ProofFleet, dice: random.Random) -> None:
        self._fleet = fleet
        self._dice = dice
        self._number = 0
        self.endings: Counter[str] = Counter()
        self.differences: list[str] = []

    def run(self, cases: int) -> None:
        """Try so many cases, and delete all that they left."""
        with self._fleet.services() as services:
            for tenant in TENANTS:
                create_tenant(services, tenant)
            while self._number < cases:
                self._number += 1
                (kind,) = self._dice.choices(list(CASES), list(CASES.values()))
                self._case(services, kind)
            self._thin_out(services, 0)
            for host in HOSTS:
                uncordon_host(services, host, gpu=None, reason="over", force=True)

    def _case(self, services: Services, kind: str) -> None:
        self._thin_out(services, MOST_VMS)
        self._set_quotas(services)
        work, said = getattr(self, f"_{kind.replace(' ', '_')}")(services)
        before = look(services, TENANTS)
        with services.rehearsed() as rehearsed:
            tried = _ending(rehearsed, work) | look(rehearsed, TENANTS)
        kept = look(services, TENANTS)
        for key in before:
            if kept[key] != before[key]:
                self._blame(kind, said, f"{key} after the dry run", kept[key], before[key])
        done = _ending(services, work) | look(services, TENANTS)
        if _TEST_DRIVER in str(done):
            self.endings["not compared: libvirt's test driver"] += 1
            return
        self.endings[f"{kind}: {done['error'][1] if done['error'] else 'done'}"] += 1
        for key in done:
            if tried[key] != done[key]:
                self._blame(kind, said, key, tried[key], done[key])
        if kind == "drain":
            for host in HOSTS:
                uncordon_host(services, host, gpu=None, reason="over", force=True)

    def _one_by_one(self, _services: Services) -> tuple[Callable[[Services], object], object]:
        dice = self._dice
        if dice.random() < 0.5:  # --count
            one = self._vm(dice.choice(TENANTS))
            wanted = [replace(one, name=f"{one.name}-{number}") for number in range(1, dice.choice((2, 3, 3, 4, 6, 9)))]
        else:
            wanted = [self._vm(dice.choice(TENANTS)) for _ in range(dice.choice((1, 2, 2, 3, 5)))]
            wanted = [replace(one, name=f"{one.name}-{number}") for number, one in enumerate(wanted, 1)]
        return partial(_create, wanted=wanted), [*map(_asked, wanted)]

    def _gang(self, _services: Services) -> tuple[Callable[[Services], object], object]:
        tenant = self._dice.choice(TENANTS)
        wanted = [self._vm(tenant) for _ in range(self._dice.choice((2, 2, 3)))]
        wanted = [replace(one, name=f"{one.name}-{number}") for number, one in enumerate(wanted, 1)]
        return partial(_create, wanted=wanted, options=CreateOptions(is_gang=True)), [*map(_asked, wanted)]

    def _preemption(self, services: Services) -> tuple[Callable[[Services], object], object]:
        """Fill up with VMs that may be preempted, then ask for more of a higher priority."""
        self._thin_out(services, 1)
        for tenant in TENANTS:
            set_quota(services, tenant, limits=dict.fromkeys(_QUOTAS), guaranteed={})
        gpu = self._dice.choice(("A40-24Q", "L40S-24Q", "T4-16Q", "A40-48Q"))
        plain = replace(self._vm("umbrella", gpu), vcpus=1, memory_mib=96, host=None, constraints=NO_CONSTRAINTS)
        low = replace(plain, priority=100, preemptible=Preemption.STOP, data_disks=())
        with_room = [replace(low, name=f"{low.name}-low{number}") for number in range(4)]
        _ending(services, partial(_create, wanted=with_room))
        high = replace(low, tenant="acme", priority=900, preemptible=None)
        wanted = [replace(high, name=f"{high.name}-{number}") for number in range(self._dice.randint(1, 3))]
        is_given = self._dice.random() < 0.8
        options = CreateOptions(consent=Consent(is_given=is_given, grace_s=0, shutdown_timeout_s=0))
        return partial(_create, wanted=wanted, options=options), ([*map(_asked, wanted)], is_given)

    def _tenant_file(self, services: Services) -> tuple[Callable[[Services], object], object]:
        dice, tenant = self._dice, self._dice.choice(TENANTS)
        with services.store.reading() as session:
            there = [
                one.request for one in session.vms(tenant=tenant) if one.state in (VmState.RUNNING, VmState.STOPPED)
            ]
        again = dice.sample(there, min(len(there), dice.randint(0, 2)))
        if again and dice.random() < 0.2:
            again[0] = replace(again[0], vcpus=again[0].vcpus + 1)
        new = [self._vm(tenant) for _ in range(dice.randint(1, 4))]
        new = [replace(one, name=f"{one.name}-{number}") for number, one in enumerate(new, 1)]
        network = NetworkRequest(
            f"net{self._number}", tenant, f"10.{self._number % 250}.0.0/29", host=dice.choice(HOSTS)
        )
        if dice.random() < 0.5:
            own = _TYPES[str(network.host)]
            new = [replace(one, network=network.name, gpus=(read_gpu_request(dice.choice(own)),)) for one in new]
        limits = {name: dice.randint(6, 40) for name in dice.sample(("vms", "gpus", "vcpus"), dice.choice((0, 0, 1)))}
        file = TenantFile(tenant, limits, networks=(network,), vms=(*again, *new))
        prune = dice.random() < 0.3

        def work(given: Services) -> list[ObjectOutcome]:
            outcomes: list[ObjectOutcome] = []
            try:
                onboard(given, file, outcomes, prune=prune, timeout_s=0)
            except VgpuctlError as error:
                error.context = (*error.context, *map(str, outcomes))
                raise
            return outcomes

        return work, ([*map(_asked, file.vms)], limits, prune)

    def _move(self, services: Services) -> tuple[Callable[[Services], object], object]:
        """Several VMs one after the other, as move-vm does it: the refusal of one stops no other."""
        vms = self._some(services, self._dice.randint(1, 4))
        to = self._dice.choice((None, None, *HOSTS))
        names = [(vm.request.tenant, vm.request.name) for vm in vms if vm.host != to]

        def work(given: Services) -> list[str]:
            told = []
            for tenant, name in names:
                with given.store.reading() as session:
                    vm = session.vm(tenant, name)
                assert vm is not None
                told.append(str(_ending(given, partial(_move, vm=vm, to=to))))
            return told

        return work, (names, to)

    def _drain(self, _services: Services) -> tuple[Callable[[Services], object], object]:
        host = self._dice.choice(HOSTS)
        options = DrainOptions(stops=self._dice.random() < 0.5, takes_stopped=self._dice.random() < 0.5, timeout_s=0)

        def work(services: Services) -> list[Drained]:
            return as_planned(drain_host(services, host, options, reason="a proof"))

        return work, (host, options)

    def _start(self, services: Services) -> tuple[Callable[[Services], object], object]:
        """Stop some, with their shares kept or released, let others take these, and start all again."""
        vms = [vm for vm in self._some(services, 4) if vm.state is VmState.RUNNING]
        for vm in vms:
            stop_vm(services, vm, hold=self._dice.choice((Hold.KEEP, Hold.RELEASE)), timeout_s=0)
        fill = [self._vm(self._dice.choice(TENANTS)) for _ in range(2)]
        fill = [replace(one, name=f"{one.name}-fill{number}") for number, one in enumerate(fill)]
        _ending(services, partial(_create, wanted=fill))
        names = [(vm.request.tenant, vm.request.name) for vm in vms]
        is_together = self._dice.random() < 0.3

        def work(given: Services) -> list[str]:
            with given.store.reading() as session:
                found = [vm for tenant, name in names if (vm := session.vm(tenant, name)) is not None]
            groups = [found] if is_together and found else [[one] for one in found]
            return [str(_ending(given, partial(_start, vms=group))) for group in groups]

        return work, (names, is_together)

    def _resize(self, services: Services) -> tuple[Callable[[Services], object], object]:
        """Several VMs one after the other get another size."""
        dice = self._dice
        vms = [(vm.request.tenant, vm.request.name) for vm in self._some(services, dice.randint(1, 3))]
        gpus = dice.choice((None, None, (read_gpu_request(dice.choice(_GPUS)),)))
        size = NewSize(dice.choice((None, 1, 6, 50)), dice.choice((None, 128, 200 * 1024)), gpus)
        options = ResizeOptions(may_move=dice.random() < 0.5, may_restart=dice.random() < 0.9, timeout_s=0)

        def work(given: Services) -> list[str]:
            with given.store.reading() as session:
                found = [vm for tenant, name in vms if (vm := session.vm(tenant, name)) is not None]
            return [str(_ending(given, partial(_resize, vm=vm, size=size, options=options))) for vm in found]

        return work, (vms, str(size), str(options))

    def _vm(self, tenant: str, gpu: str | None = None) -> VmRequest:
        dice = self._dice
        gpus = dice.choices(_GPUS, k=dice.choice((0, *[1] * 12, 2))) if gpu is None else [gpu]
        large = dice.random() < 0.08
        shared = DataDisk(f"data{dice.randint(0, 3)}", 16)
        return VmRequest(
            f"vm{self._number}",
            tenant,
            tuple(map(read_gpu_request, gpus)),
            vcpus=dice.choice((16, 40)) if large else dice.randint(1, 4),
            memory_mib=dice.choice((100, 220)) * 1024 if large else 96,
            disk=dice.choice((None, DiskRequest(64))),
            network=None,
            host=dice.choice(HOSTS) if dice.random() < 0.05 else None,
            data_disks=(shared,) if dice.random() < 0.1 else (),
            constraints=read_constraints(
                policy=dice.choice((None, None, "spread", "binpack", "fragmentation", "round-robin", "topology")),
                group=dice.choice((*[None] * 12, "web:apart", "db:together", "api")),
            ),
        )

    def _some(self, services: Services, count: int) -> list[Vm]:
        with services.store.reading() as session:
            vms = sorted(session.vms(), key=lambda vm: vm.printed_name)
        return self._dice.sample(vms, min(count, len(vms)))

    def _set_quotas(self, services: Services) -> None:
        """Other quotas for one tenant, in about half of the cases none."""
        tenant, dice = self._dice.choice(TENANTS), self._dice
        with services.store.reading() as session:
            limits: dict[str, int | None] = {one.resource: None for one in session.quotas(tenant)}
            used = session.used(tenant)
        if dice.random() < 0.3:
            for name in dice.sample(_QUOTAS, dice.randint(1, 2)):
                scale = 2048 if name in ("memory", "framebuffer", "disk") else 1
                limits[name] = used.get(name, 0) + scale * dice.randint(1, 10)
        set_quota(services, tenant, limits=limits, guaranteed={})

    def _thin_out(self, services: Services, most: int) -> None:
        """Delete VMs when there are so many, and networks without VMs."""
        with services.store.reading() as session:
            there = session.vms()
        if len(there) >= most:
            for vm in self._some(services, len(there) - most // 3):
                delete_vm(services, vm, timeout_s=0)
            with services.store.reading() as session:
                used = {port.network_id for port in session.ports()}
                networks = [one for one in session.networks() if one.id not in used]
            for network in networks:
                delete_network(services, network)

    def _blame(self, kind: str, said: object, what: str, tried: object, done: object) -> None:
        """Note a difference. Of two lists only the lines that one of them lacks are told."""
        if isinstance(tried, list) and isinstance(done, list):
            tried, done = [one for one in tried if one not in done], [one for one in done if one not in tried]
        told = f"case {self._number}, {kind}: {what}: dry run {tried}, run {done}; asked for {said}"
        self.differences.append(told)
        print(f"DIFFERENCE: {told}", file=sys.stderr, flush=True)


def _asked(request: VmRequest) -> str:
    """A VM as it was asked for, in few words."""
    gpus = ", ".join(gpu.text for gpu in request.gpus)
    where = (request.host, request.network, request.constraints.policy, request.constraints.group)
    more = [str(one) for one in where if one]
    return " ".join([f"{request.tenant}/{request.name} [{gpus}] {request.vcpus} {request.memory_mib}", *more])


def _start(services: Services, vms: Sequence[Vm]) -> list[bool]:
    return [changed for _vm, changed in start_vm(services, vms, shutdown_timeout_s=0)]


def _resize(services: Services, vm: Vm, size: NewSize, options: ResizeOptions) -> tuple[str, list[str]]:
    plan = resize_vm(services, vm, size, options)
    return plan.host, plan.shares_after


def _create(services: Services, wanted: Sequence[VmRequest], options: CreateOptions = USUAL) -> None:
    create_vm(services, wanted, options)


def _move(services: Services, vm: Vm, to: str | None) -> str:
    return move_vm(services, vm, to=to, timeout_s=0, reason="").placement.host


def _ending(services: Services, work: Callable[[Services], object]) -> dict[str, Any]:
    """What the work answers, or how it was refused."""
    try:
        return {"error": None, "answer": work(services)}
    except VgpuctlError as refusal:
        lines = [plain(line) for line in (refusal.message, *refusal.context)]
        return {"error": (refusal.exit_code, refusal.reference, *lines), "answer": None}


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
