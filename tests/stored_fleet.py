# SPDX-License-Identifier: Apache-2.0
"""A store full of hosts, VMs and leases that no machine has, for pages that show what the store knows."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import GIB, emulated_a40, host_facts, vm
from tests.unit.scheduler.test_mig_rejections import mig
from vgpuctl.agent.wire.facts import Gpu, GpuInstance, VgpuType
from vgpuctl.agent.wire.readings import GpuReadings, HostReadings, Measured, VgpuReadings, VmReadings
from vgpuctl.errors import NoCapacity
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.scheduler.place import place
from vgpuctl.store.store import Session
from vgpuctl.telemetry.history import History, MeasuredValue, Subject
from vgpuctl.usecases.observed.fleet_reader import HostSnapshot
from vgpuctl.usecases.observed.observation_record import Record, Seen, SeenGpu
from vgpuctl.usecases.running.services import Services
from vgpuctl.wiring import Settings, open_services

PROFILES = ("8Q", "16Q", "4Q", "24Q", "12Q", "48Q", "6Q")
TENANTS = ("acme", "globex", "initech", "umbrella", "wayne")
STATES = (LeaseState.RUNNING,) * 12 + (LeaseState.BUILT, LeaseState.RESERVED, LeaseState.BROKEN)
AT = 1_790_000_000.0
_BOOT = "0f0f0f0f-0000-4000-8000-000000000001"
_A100_TYPE = VgpuType("474", "A100-1-5C", "GRID A100-1-5C", 5 * GIB, 7, 1)


@dataclass(frozen=True)
class StoredFleet:
    """The stored hosts and their leases."""

    services: Services
    hosts: tuple[str, ...]
    leases: tuple[Lease, ...]


def open_stored(
    folder: Path,
    hosts: tuple[str, ...],
    clock: Callable[[], float] = lambda: AT,
    groups: Mapping[str, tuple[str, ...]] = {},
    **settings: Any,
) -> Services:
    """Services over a new store in a folder, with an inventory of these hosts. groups: the hosts of each group of it;
    settings: more of them."""
    inventory = folder / "inventory.yml"
    lines = "".join(f"    {name}: {{ansible_host: 192.0.2.1}}\n" for name in hosts)
    members = {name: {"hosts": dict.fromkeys(own)} for name, own in groups.items()}
    inventory.write_text(f"all:\n  hosts:\n{lines}  children: {json.dumps(members)}\n")
    made = Settings((str(inventory),), f"sqlite:///{folder}/store.db", command="web", **settings)
    return open_services(made, lambda _text: None, clock=clock)


def fill(services: Services, hosts: tuple[str, ...], *, cards: int, shares: int) -> StoredFleet:
    """Store hosts with A40s and VMs with one share each; the last card of every third host is an A100 in MIG mode."""
    now = services.store.now()
    found: list[Lease] = []
    tenants, states = cycle(TENANTS), cycle(STATES)
    with services.store.transaction() as session:
        for tenant in TENANTS:
            session.add_tenant(tenant)
        for number, name in enumerate(hosts):
            wanted = shares * (number + 1) // len(hosts) - shares * number // len(hosts)
            gpus = [emulated_a40(f"0000:{0x11 + 0x10 * card:02x}:00.0") for card in range(cards)]
            leases = [
                _add_vm(session, name, lease, request, next(tenants), next(states))
                for lease, request in _placed(name, number, gpus, wanted)
            ]
            facts = [gpu.facts() for gpu in gpus]
            if number % 3 == 2:
                facts[-1] = _mig_card(facts[-1].address)
            session.save_facts(name, host_facts(facts, hostname=name, cpus=512, memory_mib=4096 * GIB), at=now - 60)
            if leases:
                session.reserve(name, session.generation(name), leases)
            session.save_host_record(name, "observations", _observed(now, facts, leases))
            found += leases
    return StoredFleet(services, hosts, tuple(found))


def _placed(name: str, number: int, gpus: list[EmulatedGpu], wanted: int) -> Iterator[tuple[Lease, VmRequest]]:
    """VMs on all cards but the last, each card with one profile as equal-size mode wants it."""
    held: list[Lease] = []
    sizes = [PROFILES[(number + card) % len(PROFILES)] for card in range(len(gpus) - 1)]
    for size in sizes * 12:
        if len(held) == wanted:
            return
        capacity = HostCapacity(name, host_facts([gpu.facts() for gpu in gpus[:-1]], cpus=512, memory_mib=4096 * GIB))
        asked = vm(f"A40-{size}", name=f"{name}-vm{len(held)}")
        try:
            share = place(asked, [capacity], []).shares[0]
        except NoCapacity:  # this size is full: the next one may fit
            continue
        card = next(gpu for gpu in gpus if gpu.address == share.gpu)
        card.create(share.profile, share.function)
        uuid = str(UUID(int=number << 32 | len(held)))
        held.append(Lease(f"{name}/{share.device}", uuid, "", asked.name, name, 0, share, LeaseState.RUNNING))
        yield held[-1], asked


def _add_vm(session: Session, host: str, lease: Lease, asked: VmRequest, tenant: str, state: LeaseState) -> Lease:
    request = replace(asked, tenant=tenant)
    of_vm = {LeaseState.RUNNING: VmState.RUNNING, LeaseState.BROKEN: VmState.BROKEN}.get(state, VmState.CREATING)
    session.add_vm(Vm(lease.vm_uuid, request, host, of_vm))
    return replace(lease, tenant=tenant, state=state)


def _mig_card(address: str) -> Gpu:
    instances = (GpuInstance(1, "3g.20gb", 0, 4, in_use=True), GpuInstance(2, "1g.5gb", 6, 1, in_use=False))
    return replace(mig(*instances).facts.gpus[0], address=address, vfs=(), types=(_A100_TYPE,))


def _observed(now: float, gpus: list[Gpu], leases: list[Lease]) -> str:
    record = Record(
        read_at=now - 30,
        boot_id=_BOOT,
        gpus={gpu.address: SeenGpu("present", now - 30) for gpu in gpus},
        vms={lease.vm_uuid: Seen("running", now - 30) for lease in leases},
        shares={lease.id: Seen("held", now - 30) for lease in leases},
    )
    return msgspec.json.encode(record).decode()


def readings_of(fleet: StoredFleet, now: float = AT) -> dict[str, HostSnapshot]:
    """Readings of each host, made up from the leases."""
    found = {}
    with fleet.services.store.reading() as session:
        facts = session.all_facts()
    for name in fleet.hosts:
        own = [one for one in fleet.leases if one.host == name and one.state is LeaseState.RUNNING]
        vgpus = tuple(
            VgpuReadings(one.share.gpu, one.share.device, one.vm_uuid, one.share.profile, measured=_use(number, one))
            for number, one in enumerate(own)
        )
        gpus = tuple(
            GpuReadings(gpu.address, gpu.uuid, gpu.name, "580", Measured((("utilization_ratio", (), _wave(number)),)))
            for number, gpu in enumerate(facts[name].facts.gpus)
        )
        vms = tuple(VmReadings(one.vm_uuid, one.vm_name, one.tenant) for one in own)
        found[name] = HostSnapshot(name, HostReadings(_BOOT, now, 1.0, gpus, (), vgpus, vms), now - 4)
    return found


def _use(number: int, lease: Lease) -> Measured:
    size = (lease.share.framebuffer_mib or 0) * 2**20
    return Measured(
        (
            ("share_utilization_ratio", (), 1.6 * _wave(number)),
            ("framebuffer_size_bytes", (), float(size)),
            ("framebuffer_used_bytes", (), size * _wave(number + 3)),
        ),
        (("encoder_sessions", "not-measurable", "the driver has no such call"),),
    )


def _wave(number: float) -> float:
    return 0.5 + 0.45 * math.sin(1.7 * number)


def keep_history(path: Path, fleet: StoredFleet, now: float = AT, *, hosts: int = 1, length_s: int = 3600) -> None:
    """A history file with a value of each minute, with a hole of ten minutes, for the first hosts."""
    with History(path) as history:
        for back in range(length_s, 0, -60):
            if 1500 > back > 900:
                continue
            values = []
            for name in fleet.hosts[:hosts]:
                own = [one for one in fleet.leases if one.host == name]
                for number, one in enumerate(own):
                    of = Subject(
                        "vgpu", name, one.share.device, one.share.gpu, one.tenant, one.vm_name, one.share.profile
                    )
                    wave = _wave(number + back / 700)
                    values.append(MeasuredValue(of, "share_utilization_ratio", 1.4 * wave))
                    values.append(MeasuredValue(of, "framebuffer_used_bytes", wave * 2**33))
                for number, gpu in enumerate(sorted({one.share.gpu for one in own})):
                    card = Subject("gpu", name, gpu, gpu)
                    values.append(MeasuredValue(card, "utilization_ratio", _wave(number + back / 500)))
                    values.append(MeasuredValue(card, "power_watts", 120 + 150 * _wave(number + back / 500)))
                    values.append(MeasuredValue(card, "temperature_celsius", 45 + 20 * _wave(number + back / 900)))
            history.add(now - back, values)
