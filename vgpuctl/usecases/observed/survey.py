# SPDX-License-Identifier: Apache-2.0
"""Facts of many hosts: from the store's cache, and read from the host where it has none or a fresh look is wanted."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import HostError, InventoryError, VgpuctlError
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.plural import counted
from vgpuctl.usecases.observed.capacities import capacity_of, read_promises
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class Survey:
    """Hosts that answered (now or, cached, before), in name order.

    failures: of hosts that did not, and of those of which the inventory says something wrong. read: those that
    answered now. incomplete: of hosts that answered without a part that was asked for.
    """

    capacities: tuple[HostCapacity, ...]
    failures: tuple[tuple[str, VgpuctlError], ...]
    read: tuple[str, ...] = ()
    incomplete: tuple[tuple[str, VgpuctlError], ...] = ()


def incomplete_facts(host: str, facts: HostFacts, *, parts: Collection[str] = ()) -> HostError | None:
    """The error of facts without something that a list shows; None when all of it was read.

    A PCI function that may be a GPU always counts. parts: fields of HostFacts that count. A GPU that is there and has a
    part that could not be read is listed with that problem.
    """
    unread = [f"{one.address}: {one.problem}" for one in facts.unread_functions]
    unread += [f"{one.name}: {one.problem}" for one in facts.unread if one.name in parts]
    if not unread:
        return None
    more = f", and {len(unread) - 1} more" if len(unread) > 1 else ""
    return HostError(
        f"{host}: not everything could be read: {unread[0]}{more}",
        context=unread[1:],
        hint=f"see `vgpuctl check-hosts -l {host}`; the agent must run as root",
    )


def survey(
    services: Services,
    names: Sequence[str],
    *,
    refresh: bool,
    remember: bool = True,
    may_contact: bool = True,
    read: Callable[[str], HostFacts] | None = None,
) -> Survey:
    """Know the facts of `names`.

    refresh: read every host now; otherwise only those the store has no facts of.
    remember: write what was read to the store's cache (not for a dry run). may_contact: if not, hosts that would have
    to be read are failures. read: reads and remembers a host, in place of `read_facts`.
    """
    with services.store.reading() as session:
        cached = {name: facts for name, facts in session.all_facts().items() if name in set(names)}
        generations = {name: session.generation(name) for name in names if refresh or name not in cached}
        promises = read_promises(session)
    missing = [name for name in names if refresh or name not in cached]
    capacities: dict[str, HostCapacity] = {}
    failures: list[tuple[str, VgpuctlError]] = []
    answered: list[str] = []

    def add(name: str, facts: HostFacts, generation: int) -> None:
        try:
            capacities[name] = capacity_of(name, facts, generation, promises, services.inventory)
        except InventoryError as error:
            failures.append((name, error))

    for name, known in cached.items():
        if name not in set(missing):
            add(name, known.facts, known.generation)
    if missing and not may_contact:
        failures += [(name, InventoryError("it was never read", hint="run `vgpuctl list-hosts`")) for name in missing]
        missing = []
    missing = [name for name in missing if _has_target(services, name, failures)]
    if missing:
        services.say(
            f"reading {counted(len(missing), 'host')}: {', '.join(missing[:5])}" + (" …" if len(missing) > 5 else "")
        )

    def facts_of(name: str) -> HostFacts:
        if read is not None:
            return read(name)
        return read_facts(services, name) if remember else services.host(name).agent.facts()

    for result in services.on_hosts(missing, facts_of):
        if result.error is not None:
            failures.append((result.name, result.error))
            continue
        answered.append(result.name)
        assert result.value is not None
        add(result.name, result.value, generations[result.name])
    return Survey(tuple(capacities[name] for name in names if name in capacities), tuple(failures), tuple(answered))


def _has_target(services: Services, name: str, failures: list[tuple[str, VgpuctlError]]) -> bool:
    """True if the inventory says how to reach a host; else `failures` gets the reason, before anybody waits for it."""
    try:
        services.inventory.target(name)
    except VgpuctlError as error:
        failures.append((name, error))
        return False
    return True
