# SPDX-License-Identifier: Apache-2.0
"""capacity: how many more VMs of one kind fit, by host, now and after VMs moved."""

from collections import Counter
from dataclasses import dataclass

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.vm import VmRequest, VmState
from vgpuctl.quota.pools import closed_hosts
from vgpuctl.scheduler.capacity import Move, PlacedVm, count_more, defragment
from vgpuctl.usecases.services import Services
from vgpuctl.usecases.survey import survey


@dataclass(frozen=True)
class HostCount:
    """How many more fit on one host."""

    host: str
    now: int
    after_defrag: int | None = None


@dataclass(frozen=True)
class Capacity:
    """after_defrag: None when it was not asked. moves: what would have to move for it."""

    now: int
    after_defrag: int | None
    hosts: tuple[HostCount, ...]
    moves: tuple[Move, ...]
    failures: tuple[tuple[str, VgpuctlError], ...]


def capacity(services: Services, request: VmRequest, *, after_defrag: bool = False, refresh: bool = False) -> Capacity:
    """Count with the rules that place VMs. request.tenant: whose pools count, empty for every host.

    Raises NotFound for the tenant, InventoryError when there is no host.
    """
    closed: dict[str, str] = {}
    if request.tenant:
        with services.store.reading() as session:
            session.tenant(request.tenant)
            closed = dict(closed_hosts(request.tenant, session.pools()))
    seen = survey(services, services.hosts(), refresh=refresh)
    usable = [one for one in seen.capacities if one.name not in closed]
    with services.store.reading() as session:
        leases = session.leases()
        vms = [vm for vm in session.vms() if vm.state in (VmState.RUNNING, VmState.STOPPED)]
    now = count_more(request, usable, leases)
    then: Counter[str] | None = None
    moves: tuple[Move, ...] = ()
    if after_defrag:
        placed = [
            PlacedVm(
                vm_uuid=vm.uuid,
                name=vm.domain_name,
                request=vm.request,
                host=vm.host,
                memory_mib=vm.request.memory_mib if vm.state is VmState.RUNNING else 0,
                leases=tuple(lease for lease in leases if lease.vm_uuid == vm.uuid),
            )
            for vm in vms
            if vm.host in {one.name for one in usable}
        ]
        found = defragment(request, usable, leases, placed)
        then, moves = found.counts, found.moves
    hosts = tuple(HostCount(one.name, now[one.name], None if then is None else then[one.name]) for one in usable)
    return Capacity(now.total(), None if then is None else then.total(), hosts, moves, seen.failures)
