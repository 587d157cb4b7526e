# SPDX-License-Identifier: Apache-2.0
"""Facts of many hosts: from the store's cache, and read from the host where it has none or a fresh look is wanted."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgpuctl.errors import VgpuctlError
from vgpuctl.hosts.fleet import run_on_hosts
from vgpuctl.model.guest_memory import GuestMemory
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmState
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.usecases.services import Services

if TYPE_CHECKING:
    from vgpuctl.store.session import Session


@dataclass(frozen=True)
class Survey:
    """Hosts that answered (now or, cached, before), in name order, and the errors of those that did not."""

    capacities: tuple[HostCapacity, ...]
    failures: tuple[tuple[str, VgpuctlError], ...]


def survey(services: Services, names: Sequence[str], *, refresh: bool, remember: bool = True) -> Survey:
    """Know the facts of `names`.

    refresh: read every host now; otherwise only those the store has no facts of.
    remember: write what was read to the store's cache (not for a dry run).
    """
    with services.store.reading() as session:
        cached = {name: facts for name, facts in session.all_facts().items() if name in set(names)}
        generations = {name: session.generation(name) for name in names if refresh or name not in cached}
        promised, groups = promised_memory(session), groups_there(session)
    missing = [name for name in names if refresh or name not in cached]
    capacities = {
        name: with_promised(
            HostCapacity(
                name,
                known.facts,
                known.generation,
                traits=services.inventory.traits(name),
                groups=groups[name],
            ),
            more=promised[name],
        )
        for name, known in cached.items()
        if name not in set(missing)
    }
    failures: list[tuple[str, VgpuctlError]] = []
    if missing:
        services.say(
            f"reading {len(missing)} host{'s' if len(missing) > 1 else ''}: {', '.join(missing[:5])}"
            + (" …" if len(missing) > 5 else "")
        )
    for result in run_on_hosts(missing, lambda name: services.host(name).agent.facts(), forks=services.forks):
        if result.error is not None:
            failures.append((result.name, result.error))
            continue
        assert result.value is not None
        generation = generations[result.name]
        if remember:
            with services.store.transaction() as session:
                session.save_facts(result.name, result.value, at=result.value.read_at)
        capacities[result.name] = with_promised(
            HostCapacity(
                result.name,
                result.value,
                generation,
                traits=services.inventory.traits(result.name),
                groups=groups[result.name],
            ),
            more=promised[result.name],
        )
    return Survey(tuple(capacities[name] for name in names if name in capacities), tuple(failures))


def promised_memory(session: "Session") -> defaultdict[str, list[GuestMemory]]:
    """Memory by host that belongs to VMs: those that run or are on their way, and stopped ones that keep GPUs."""
    keeping = {lease.vm_uuid for lease in session.leases()}
    promised: defaultdict[str, list[GuestMemory]] = defaultdict(list)
    for vm in session.vms():
        if vm.state is not VmState.STOPPED or vm.uuid in keeping:
            promised[vm.host].append(vm.request.memory)
    return promised


def groups_there(session: "Session") -> defaultdict[str, frozenset[tuple[str, str]]]:
    """The groups of VMs by host, each with its tenant."""
    there: defaultdict[str, frozenset[tuple[str, str]]] = defaultdict(frozenset)
    for vm in session.vms():
        if vm.request.wishes.group is not None:
            there[vm.host] |= {(vm.request.tenant, vm.request.wishes.group)}
    return there
