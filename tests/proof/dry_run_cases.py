# SPDX-License-Identifier: Apache-2.0
"""Generated work on VMs for tests.proof.dry_runs: each case is tried on services that rehearse, and then done."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tests.proof.stored_rows import plain
from vgpuctl.catalog import read_gpu_request
from vgpuctl.errors import VgpuctlError
from vgpuctl.model.constraints import NO_CONSTRAINTS, read_constraints
from vgpuctl.model.disk import DataDisk, DiskRequest
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.network import NetworkRequest
from vgpuctl.model.tenant_file import TenantFile
from vgpuctl.model.vm import Hold, Preemption, Vm, VmRequest, VmState
from vgpuctl.quota.resources import Limited
from vgpuctl.quota.vm_limits import WantedLimit
from vgpuctl.usecases.disk.kept_vms import delete_kept
from vgpuctl.usecases.maintenance.drain_host import Drained, DrainOptions, as_planned, drain_host
from vgpuctl.usecases.network.networks import delete_network
from vgpuctl.usecases.network.vpc_changes import ObjectOutcome
from vgpuctl.usecases.placement.queue import leave_queue
from vgpuctl.usecases.placement.reservations import cancel_reservation
from vgpuctl.usecases.placement.reserve import reserve
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.tenant.onboard import onboard
from vgpuctl.usecases.tenant.set_quota import set_quota
from vgpuctl.usecases.vm.attach_gpu import attach_gpu
from vgpuctl.usecases.vm.create_vm import USUAL, CreateOptions, create_vm
from vgpuctl.usecases.vm.delete_vm import delete_vm
from vgpuctl.usecases.vm.detach_gpu import detach_gpu
from vgpuctl.usecases.vm.move_vm import MoveOptions, move_vm
from vgpuctl.usecases.vm.plug_wish import PlugWish
from vgpuctl.usecases.vm.preemption_consent import Consent
from vgpuctl.usecases.vm.resize_plan import NewSize
from vgpuctl.usecases.vm.resize_vm import ResizeOptions, resize_vm
from vgpuctl.usecases.vm.restore_vm import find_kept, restore_vm
from vgpuctl.usecases.vm.start_vm import start_vm
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm

TENANTS = ("acme", "umbrella")
HOSTS = ("sim-001", "sim-002", "sim-003", "sim-004", "sim-005")
CASES = {
    **{"one by one": 8, "gang": 4, "preemption": 2, "tenant file": 4, "move": 4, "drain": 2, "start": 4, "resize": 4},
    **{"queue": 3, "reserve": 3, "attach": 5, "detach": 4, "restore": 4, "delete": 2},
}
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


class DryRunCases:
    """Makes cases for the hosts of a ProofFleet. A maker prepares the fleet and returns the work, and what it asks for.

    number: of the case, which is in the names of its VMs.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.number = 0

    def make(self, services: Services, kind: str) -> tuple[Callable[[Services], object], object]:
        """The next case of a kind, with room for it and other quotas."""
        self.number += 1
        self.thin_out(services, MOST_VMS)
        self._set_quotas(services)
        made: tuple[Callable[[Services], object], object] = getattr(self, f"_{kind.replace(' ', '_')}")(services)
        return made

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
        self.thin_out(services, 1)
        for tenant in TENANTS:
            set_quota(services, tenant, limits=dict.fromkeys(_QUOTAS), guaranteed={})
        gpu = self._dice.choice(("A40-24Q", "L40S-24Q", "T4-16Q", "A40-48Q"))
        plain = replace(self._vm("umbrella", gpu), host=None, constraints=NO_CONSTRAINTS)
        low = replace(plain, priority=100, preemptible=self._dice.choice((*Preemption,)), data_disks=())
        with_room = [replace(low, name=f"{low.name}-low{number}") for number in range(4)]
        ending(services, partial(_create, wanted=with_room))
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
        network = NetworkRequest(f"net{self.number}", tenant, f"10.{self.number % 250}.0.0/29", host=dice.choice(HOSTS))
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
                told.append(str(ending(given, partial(_move, vm=vm, to=to))))
            return told

        return work, (names, to)

    def _drain(self, _services: Services) -> tuple[Callable[[Services], object], object]:
        host = self._dice.choice(HOSTS)
        options = DrainOptions(stops=self._dice.random() < 0.5, takes_stopped=self._dice.random() < 0.5, timeout_s=0)

        def work(services: Services) -> list[Drained]:
            planned = as_planned(drain_host(services, host, options, reason="a proof"))
            return [replace(one, downtime_s=None) for one in planned]  # the run measures what a dry run estimates

        return work, (host, options)

    def _start(self, services: Services) -> tuple[Callable[[Services], object], object]:
        """Stop some, with their shares kept or released, let others take these, and start all again."""
        vms = [vm for vm in self._some(services, 4) if vm.state is VmState.RUNNING]
        for vm in vms:
            stop_vm(services, vm, Stop(self._dice.choice((Hold.KEEP, Hold.RELEASE)), 0))
        fill = [self._vm(self._dice.choice(TENANTS)) for _ in range(2)]
        fill = [replace(one, name=f"{one.name}-fill{number}") for number, one in enumerate(fill)]
        ending(services, partial(_create, wanted=fill))
        names = [(vm.request.tenant, vm.request.name) for vm in vms]
        is_together = self._dice.random() < 0.3

        def work(given: Services) -> list[str]:
            with given.store.reading() as session:
                found = [vm for tenant, name in names if (vm := session.vm(tenant, name)) is not None]
            groups = [found] if is_together and found else [[one] for one in found]
            return [str(ending(given, partial(_start, vms=group))) for group in groups]

        return work, (names, is_together)

    def _resize(self, services: Services) -> tuple[Callable[[Services], object], object]:
        """Several VMs one after the other get another size."""
        dice = self._dice
        vms = [(vm.request.tenant, vm.request.name) for vm in self._some(services, dice.randint(1, 3))]
        gpus = dice.choice((None, None, (read_gpu_request(dice.choice(_GPUS)),)))
        limit = dice.choice((None, None, Limited.CPU_WEIGHT, Limited.DISK_IOPS))
        limits = () if limit is None else (WantedLimit(limit, None, 300),)
        size = NewSize(dice.choice((None, 1, 6, 50)), dice.choice((None, 128, 200 * 1024)), gpus, limits=limits)
        options = ResizeOptions(may_move=dice.random() < 0.5, may_restart=dice.random() < 0.9, timeout_s=0)

        def work(given: Services) -> list[str]:
            with given.store.reading() as session:
                found = [vm for tenant, name in vms if (vm := session.vm(tenant, name)) is not None]
            return [str(ending(given, partial(_resize, vm=vm, size=size, options=options))) for vm in found]

        return work, (vms, str(size), str(options))

    def _queue(self, _services: Services) -> tuple[Callable[[Services], object], object]:
        """VMs that wait when they do not fit, or when others wait before them."""
        wanted = [self._vm(self._dice.choice(TENANTS)) for _ in range(3)]
        wanted = [replace(one, name=f"{one.name}-{number}") for number, one in enumerate(wanted, 1)]
        return partial(_create, wanted=wanted, options=CreateOptions(may_queue=True)), [*map(_asked, wanted)]

    def _reserve(self, services: Services) -> tuple[Callable[[Services], object], object]:
        """Two reservations, of which the second finds the first."""
        dice, begin = self._dice, services.store.now() + self._dice.choice((1, 3600))
        asked = [(dice.choice(TENANTS), read_gpu_request(dice.choice(_GPUS))) for _ in range(2)]

        def work(given: Services) -> list[str]:
            return [
                str(ending(given, partial(_reserve, tenant=tenant, name=f"r{self.number}-{n}", gpu=gpu, begin=begin)))
                for n, (tenant, gpu) in enumerate(asked)
            ]

        return work, [(tenant, gpu.text) for tenant, gpu in asked]

    def _attach(self, services: Services) -> tuple[Callable[[Services], object], object]:
        """GPUs for VMs that run, that have kept their shares and that have released them."""
        dice, vms = self._dice, self._half_stopped(services)
        wanted = [(vm.request.tenant, vm.request.name, read_gpu_request(dice.choice(_GPUS))) for vm in vms]
        wish = dice.choice((PlugWish.AS_IT_GOES, PlugWish.AT_NEXT_START))

        def one(given: Services, tenant: str, name: str, gpu: GpuRequest) -> object:
            done = attach_gpu(given, _vm_of(given, tenant, name), gpu, wish=wish)
            return done.position, done.is_live, done.reason, [gpu.text for gpu in done.vm.request.gpus]

        def work(given: Services) -> list[str]:
            return [str(ending(given, partial(one, tenant=t, name=name, gpu=gpu))) for t, name, gpu in wanted]

        return work, [(tenant, name, gpu.text, wish) for tenant, name, gpu in wanted]

    def _detach(self, services: Services) -> tuple[Callable[[Services], object], object]:
        """GPUs of VMs that run or have stopped, and what then fits in their place. No guest lets go while it runs."""
        dice, vms = self._dice, self._half_stopped(services)
        names = [(vm.request.tenant, vm.request.name, dice.choice((0, 0, 1))) for vm in vms]
        new = replace(self._vm(dice.choice(TENANTS)), data_disks=())

        def one(given: Services, tenant: str, name: str, position: int) -> object:
            vm = _vm_of(given, tenant, name)
            done = detach_gpu(given, vm, position, wish=PlugWish.AT_NEXT_START, timeout_s=0)
            return done.position, done.is_pending, done.reason

        def work(given: Services) -> list[str]:
            told = [str(ending(given, partial(one, tenant=t, name=name, position=at))) for t, name, at in names]
            return [*told, str(ending(given, partial(_create, wanted=[new])))]

        return work, (names, _asked(new))

    def _restore(self, services: Services) -> tuple[Callable[[Services], object], object]:
        """Delete VMs and keep their disks, let others take the place, and restore all."""
        vms = [vm for vm in self._some(services, 4) if vm.request.disk is not None]
        for vm in vms:
            ending(services, partial(_delete, vm=vm, keep_s=600))
        fill = [replace(self._vm(self._dice.choice(TENANTS)), name=f"vm{self.number}-fill{n}") for n in range(3)]
        ending(services, partial(_create, wanted=fill))
        self._set_quotas(services)
        starts = self._dice.random() < 0.8

        def one(given: Services, tenant: str, name: str) -> object:
            done = restore_vm(given, find_kept(given, tenant, name), starts=starts)
            return done.vm.host, done.without

        def work(given: Services) -> list[str]:
            names = [(vm.request.tenant, vm.request.name) for vm in vms]
            return [str(ending(given, partial(one, tenant=tenant, name=name))) for tenant, name in names]

        return work, ([vm.printed_name for vm in vms], starts)

    def _delete(self, services: Services) -> tuple[Callable[[Services], object], object]:
        """Delete VMs, and create others in their place."""
        vms = [(vm.request.tenant, vm.request.name) for vm in self._some(services, 3)]
        keep_s = self._dice.choice((None, 600.0))
        new = [replace(self._vm(self._dice.choice(TENANTS)), name=f"vm{self.number}-{n}") for n in range(2)]

        def work(given: Services) -> list[str]:
            found = [_vm_of(given, tenant, name) for tenant, name in vms]
            told = [str(ending(given, partial(_delete, vm=vm, keep_s=keep_s))) for vm in found]
            return [*told, str(ending(given, partial(_create, wanted=new)))]

        return work, (vms, keep_s, [*map(_asked, new)])

    def _vm(self, tenant: str, gpu: str | None = None) -> VmRequest:
        dice = self._dice
        gpus = dice.choices(_GPUS, k=dice.choice((0, *[1] * 12, 2))) if gpu is None else [gpu]
        large = dice.random() < 0.08
        shared = DataDisk(f"data{dice.randint(0, 3)}", 16)
        return VmRequest(
            f"vm{self.number}",
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

    def _half_stopped(self, services: Services) -> list[Vm]:
        """Some VMs, of which about half have stopped, with or without their shares."""
        vms = self._some(services, 3)
        for vm in vms:
            if vm.state is VmState.RUNNING and self._dice.random() < 0.5:
                stop_vm(services, vm, Stop(self._dice.choice((Hold.KEEP, Hold.RELEASE)), 0))
        return vms

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

    def thin_out(self, services: Services, most: int) -> None:
        """Delete VMs when there are so many, and networks without VMs. Reservations and the queue end now and then."""
        with services.store.reading() as session:
            there, kept, queue, promised = session.vms(), session.kept_vms(), session.queue(), session.reservations()
        if not most or self._dice.random() < 0.4:
            for entry in queue:
                leave_queue(services, entry.request.tenant, entry.request.name)
            for one in promised:
                cancel_reservation(services, one.tenant, one.name)
        if len(there) >= most:
            for deleted in kept:
                delete_kept(services, deleted, "a proof")
            for vm in self._some(services, len(there) - most // 3):
                delete_vm(services, vm, timeout_s=0)
            with services.store.reading() as session:
                used = {port.network_id for port in session.ports()}
                networks = [one for one in session.networks() if one.id not in used]
            for network in networks:
                delete_network(services, network)


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


def _vm_of(services: Services, tenant: str, name: str) -> Vm:
    with services.store.reading() as session:
        vm = session.vm(tenant, name)
    assert vm is not None
    return vm


def _reserve(services: Services, tenant: str, name: str, gpu: GpuRequest, begin: float) -> object:
    made, _ = reserve(services, tenant, name, (gpu,), begin=begin, end=begin + 3600, every_s=None)
    return made.host, [(share.function, share.profile) for share in made.shares]


def _delete(services: Services, vm: Vm, keep_s: float | None) -> None:
    delete_vm(services, vm, timeout_s=0, keep_s=keep_s)


def _create(services: Services, wanted: Sequence[VmRequest], options: CreateOptions = USUAL) -> None:
    create_vm(services, wanted, options)


def _move(services: Services, vm: Vm, to: str | None) -> str:
    done = move_vm(services, vm, MoveOptions(timeout_s=0), to=to)
    return f"{done.kind} to {done.plan.placement.host}"


def ending(services: Services, work: Callable[[Services], object]) -> dict[str, Any]:
    """The answer of the work, or the error that refused it."""
    try:
        return {"error": None, "answer": work(services)}
    except VgpuctlError as refusal:
        lines = [plain(line) for line in (refusal.message, *refusal.context)]
        return {"error": (refusal.exit_code, refusal.reference, *lines), "answer": None}
