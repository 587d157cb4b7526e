# SPDX-License-Identifier: Apache-2.0
"""Hosts with everything that is taken on them, indexed by state: a decision does not look at every host.

GPUs in an equal state share one entry (gpu_class, state_index), and so do hosts for a VM with several GPUs. Leases
come and go one by one; the cost of a decision follows the number of states that are new, not the number of hosts.
"""

import bisect
from collections import Counter
from collections.abc import Collection, Hashable, Iterable

from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.policy import DEFAULT_POLICY, Policy, parse_policy
from vgpuctl.model.vm import VmRequest
from vgpuctl.model.wishes import Label
from vgpuctl.scheduler.class_index import MOST_QUESTIONS, ClassIndex
from vgpuctl.scheduler.gpu_class import Card, GpuClasses
from vgpuctl.scheduler.gpu_state import GpuState, read_gpu
from vgpuctl.scheduler.host_memory import bounds_mib, promised_by_page
from vgpuctl.scheduler.judge import NOTHING_MORE, FleetView, Judge, Price
from vgpuctl.scheduler.question import IndexKey, Question
from vgpuctl.scheduler.state_index import StateIndex

HOST_ENDS = "\0"
"""Between host name and GPU address in an index of GPUs: sorts as the pair does."""


class Host:
    """One host: its cards by address, in order, and the room it has for the memory of VMs, exact and rounded.

    cpus: 0 in maintenance, when it takes no VM. promised_mib, rooms_mib, rounded_mib: by size of huge pages in KiB,
    None for ordinary memory.
    """

    def __init__(self, capacity: HostCapacity, cards: dict[str, Card]) -> None:
        self.capacity = capacity
        self.name = capacity.name
        self.cpus = 0 if capacity.traits.maintenance is not None else capacity.facts.cpus
        self.labels = capacity.traits.labels
        self.cards = cards
        self.promised_mib = promised_by_page(capacity)
        sizes = [pool.size_kib for pool in capacity.facts.hugepages or ()]
        self._bounds_mib = {
            page_kib: bounds_mib(capacity.facts, self.promised_mib.get(page_kib, 0), page_kib)
            for page_kib in (None, *sizes)
        }
        self.rooms_mib: dict[int | None, int] = {}
        self.rounded_mib: dict[int | None, int] = {}
        for page_kib in self._bounds_mib:
            self.promise(0, page_kib)

    @property
    def states(self) -> list[GpuState]:
        """Its GPUs, by address."""
        return [card.state for card in self.cards.values()]

    @property
    def free(self) -> float:
        """How much of its GPUs is free, 0 to 1, in steps that make equal hosts equal."""
        return round(sum(card.free for card in self.cards.values()) / max(1, len(self.cards)), 3)

    @property
    def state(self) -> Hashable:
        """Equal for hosts that differ in name and the order of their GPUs alone."""
        rooms = tuple(self.rooms_mib.items())
        return (self.cpus, rooms, self.labels, tuple(sorted(card.number for card in self.cards.values())))

    def promise(self, memory_mib: int, page_kib: int | None) -> bool:
        """Count memory of a VM, negative when it goes. Returns whether the rounded room is another now."""
        promised_mib = self.promised_mib[page_kib] = self.promised_mib.get(page_kib, 0) + memory_mib
        most_mib, free_mib = self._bounds_mib.get(page_kib, (0, 0))
        room = self.rooms_mib[page_kib] = max(0, min(most_mib - promised_mib, free_mib))
        before = self.rounded_mib.get(page_kib)
        self.rounded_mib[page_kib] = _rounded(room)
        return before != self.rounded_mib[page_kib]

    def room_for(self, question: Question) -> int:
        """The exact room for the kind of memory that a VM wants."""
        return self.rooms_mib.get(question.page_kib, 0)


GpuMember = tuple[int, int, int, float]
"""A GPU in an index: its host's CPUs and rounded room for memory, its class, and how much of the host is free."""

HostMember = tuple[int, int, frozenset[Label], tuple[str, ...], tuple[int, ...]]
"""A host in an index: its CPUs and rounded room, its labels, its GPUs' addresses where
they matter, and their classes."""

_Choice = tuple[Price, str, str]
"""What it costs, the host, and the GPU's address where one slice is wanted."""


class Fleet:
    """Hosts by name. Equal hosts, leases and questions give equal answers, whatever happened before.

    policy, view: what `place` uses unless it is told otherwise.
    """

    def __init__(
        self,
        capacities: Iterable[HostCapacity] = (),
        leases: Iterable[Lease] = (),
        policy: Policy = DEFAULT_POLICY,
        view: FleetView = NOTHING_MORE,
    ) -> None:
        self.hosts: dict[str, Host] = {}
        self.last_host = view.last_host
        self._policy = policy
        self._view = view
        self._names: list[str] = []
        self._classes = GpuClasses()
        self._gpu_indexes: dict[IndexKey, ClassIndex[GpuMember]] = {}
        self._host_indexes: dict[IndexKey, StateIndex[HostMember, Price]] = {}
        self._questions: dict[Hashable, Question] = {}
        self._policies: Counter[str | None] = Counter()
        self._groups: dict[tuple[str, str], Counter[str]] = {}
        by_host: dict[str, list[Lease]] = {}
        for lease in leases:
            by_host.setdefault(lease.host, []).append(lease)
        for capacity in capacities:
            self.put(capacity, by_host.get(capacity.name, ()))

    @property
    def number_of_classes(self) -> int:
        """How many different states of GPUs were seen."""
        return len(self._classes.examples)

    def put(self, capacity: HostCapacity, leases: Iterable[Lease] = ()) -> None:
        """Add a host, or say anew what was read of it and which leases are on it."""
        name = capacity.name
        if name in self.hosts:
            self.remove(name)
        bisect.insort(self._names, name)
        cards = {}
        for gpu in sorted(capacity.facts.gpus, key=lambda one: one.address):
            busy = self._view.utilisation_percent.get((name, gpu.address), 0.0)
            reading = read_gpu(
                name, capacity.facts, gpu, busy_percent=busy, traits=capacity.traits, declared=capacity.declared
            )
            cards[gpu.address] = Card(reading, self._classes)
        for lease in leases:
            if lease.slice.gpu in cards and lease.state.holds_device():
                cards[lease.slice.gpu].take(lease)
        host = self.hosts[name] = Host(capacity, cards)
        self._policies[capacity.traits.policy] += 1
        for group in capacity.groups:
            self._groups.setdefault(group, Counter())[name] += 1
        for key, gpus in self._gpu_indexes.items():
            self._enter_gpus(key, gpus, host, cards)
        for key, hosts in self._host_indexes.items():
            self._enter_host(key, hosts, host)

    def remove(self, name: str) -> None:
        """Take a host out. Raises KeyError when it is not there."""
        host = self.hosts.pop(name)
        self._policies[host.capacity.traits.policy] -= 1
        for there in self._groups.values():
            del there[name]
        self._names.pop(bisect.bisect_left(self._names, name))
        for gpus in self._gpu_indexes.values():
            for address in host.cards:
                gpus.remove(name + HOST_ENDS + address)
        for hosts in self._host_indexes.values():
            hosts.remove(name)

    def take(
        self,
        host: str,
        leases: Collection[Lease],
        memory_mib: int = 0,
        group: tuple[str, str] | None = None,
        page_kib: int | None = None,
    ) -> None:
        """Count the leases of one VM that was placed, its memory, and its group: tenant and name.

        page_kib: of which huge pages the memory is, None for ordinary memory.
        """
        found = self.hosts[host]
        if group is not None:
            self._groups.setdefault(group, Counter())[host] += 1
        for lease in leases:
            found.cards[lease.slice.gpu].take(lease)
        self.last_host = host
        self._changed(found, {lease.slice.gpu for lease in leases}, memory_mib, page_kib)

    def give_back(
        self,
        host: str,
        leases: Collection[Lease],
        memory_mib: int = 0,
        group: tuple[str, str] | None = None,
        page_kib: int | None = None,
    ) -> None:
        """Forget what `take` counted."""
        found = self.hosts[host]
        if group is not None:
            self._groups[group][host] -= 1
        for lease in leases:
            found.cards[lease.slice.gpu].give_back(lease)
        self._changed(found, {lease.slice.gpu for lease in leases}, -memory_mib, page_kib)

    def place(self, request: VmRequest, policy: Policy | None = None) -> Placement | None:
        """Choose host and GPUs for one VM; None when no host can take it. Nothing is counted as taken yet."""
        question = self._question(request, policy or self.policy_for(request))
        there = self.hosts_of_group(request)
        if there:
            together = request.wishes.together
            found = self._place_apart(question, request, there) if together.is_apart() else None
            if not together.is_apart():
                found = self._best_of(question, [self.hosts[name] for name in there if request.host in (None, name)])
            if found is not None or not together.is_preference():
                return found
        return self._place_anywhere(question, request.host)

    def policy_for(self, request: VmRequest) -> Policy:
        """The request's policy, else the one that all hosts name, else the fleet's."""
        if request.wishes.policy is not None:
            return parse_policy(request.wishes.policy)
        named = [name for name, count in self._policies.items() if count]
        return parse_policy(named[0]) if len(named) == 1 and named[0] is not None else self._policy

    def hosts_of_group(self, request: VmRequest) -> list[str]:
        """The hosts that have a VM of the request's group."""
        there = self._groups.get((request.tenant, request.wishes.group or ""), Counter[str]())
        return sorted(name for name, count in there.items() if count > 0)

    def _place_apart(self, question: Question, request: VmRequest, there: Collection[str]) -> Placement | None:
        found = self._place_anywhere(question, request.host)
        if found is None or found.host not in there:
            return found
        return self._best_of(
            question,
            [host for name, host in self.hosts.items() if name not in there and request.host in (None, name)],
        )

    def _place_anywhere(self, question: Question, host_name: str | None) -> Placement | None:
        if host_name is not None:
            named = self.hosts.get(host_name)
            return self._best_of(question, [] if named is None else [named])
        found = self._choose(question.index, question)
        if found is None:
            return self._best_of(question, [host for host in self.hosts.values() if _hides(host, question)])
        if question.takes_turns:
            return self._next_in_turn(question, found[1])
        name, _, address = found[0].partition(HOST_ENDS)
        return self._placement(question, name, address)

    def _choose(self, key: IndexKey, question: Question) -> tuple[str, Price] | None:
        """The best member of an index, and its price."""
        if not key.of_hosts:
            return self._gpu_index(key).choose(question.key, lambda state: self._price_of_gpu(question, state))
        index = self._host_index(key)
        found = index.choose(question.key, lambda state: self._price_of_host(question, state, index.first_of(state)))
        if found is None:
            return None
        price = self._price_of_host(question, found[1], found[0])
        assert price is not None
        return found[0], price

    def _question(self, request: VmRequest, policy: Policy) -> Question:
        wishes = request.wishes
        memory = (request.memory_mib, request.hugepages_kib)
        key = (request.gpus, request.vcpus, memory, policy, wishes.required, wishes.preferred)
        found = self._questions.get(key)
        if found is None:
            if len(self._questions) >= MOST_QUESTIONS:
                self._questions.clear()
            found = self._questions[key] = Question(key, request, Judge(policy, wishes.preferred))
        return found

    def _gpu_index(self, key: IndexKey) -> ClassIndex[GpuMember]:
        if key not in self._gpu_indexes:
            index = self._gpu_indexes[key] = ClassIndex()
            for host in self.hosts.values():
                self._enter_gpus(key, index, host, host.cards)
        return self._gpu_indexes[key]

    def _host_index(self, key: IndexKey) -> StateIndex[HostMember, Price]:
        if key not in self._host_indexes:
            index = self._host_indexes[key] = StateIndex()
            for host in self.hosts.values():
                self._enter_host(key, index, host)
        return self._host_indexes[key]

    def _enter_gpus(self, key: IndexKey, index: ClassIndex[GpuMember], host: Host, addresses: Iterable[str]) -> None:
        """Tell an index the state of these GPUs of a host."""
        name, cpus, room = host.name + HOST_ENDS, host.cpus, host.rounded_mib.get(key.page_kib, 0)
        free = host.free if key.with_loads else 0.0
        for address in addresses:
            index.put(name + address, (cpus, room, host.cards[address].number, free))

    def _enter_host(self, key: IndexKey, index: StateIndex[HostMember, Price], host: Host) -> None:
        """Tell an index the state of a host."""
        numbers = [card.number for card in host.cards.values()]
        if not key.with_places:
            numbers.sort()
        places = tuple(host.cards) if key.with_places else ()
        state = (host.cpus, host.rounded_mib.get(key.page_kib, 0), host.labels, places, tuple(numbers))
        index.put(host.name, state)

    def _changed(self, host: Host, addresses: set[str], memory_mib: int, page_kib: int | None) -> None:
        has_other_room = host.promise(memory_mib, page_kib)
        for key, gpus in self._gpu_indexes.items():
            is_of_all = key.with_loads or (has_other_room and key.page_kib == page_kib)
            self._enter_gpus(key, gpus, host, host.cards if is_of_all else addresses)
        for key, hosts in self._host_indexes.items():
            self._enter_host(key, hosts, host)

    def _price_of_gpu(self, question: Question, state: GpuMember) -> Price | None:
        cpus, room, number, free = state
        if question.vcpus > cpus or question.memory_mib > room:
            return None
        return question.price_on(number, self._classes.examples[number], free)

    def _price_of_host(self, question: Question, state: HostMember, name: str) -> Price | None:
        cpus, room, *_ = state
        host = self.hosts[name]
        if question.vcpus > cpus or question.memory_mib > room:
            return None
        if not question.may_fit([(card.number, card.example) for card in host.cards.values()]):
            return None
        fitting = question.fit_on(host.states, host.labels)
        return None if fitting is None else fitting[0]

    def _choice_on(self, question: Question, host: Host) -> _Choice | None:
        """The best on one host, by looking at all of it."""
        if question.vcpus > host.cpus or question.memory_mib > host.room_for(question):
            return None
        if len(question.wants) != 1:
            fitting = question.fit_on(host.states, host.labels)
            return None if fitting is None else (fitting[0], host.name, "")
        free = host.free if question.index.with_loads else 0.0
        best: _Choice | None = None
        for address, card in host.cards.items():
            price = question.price_on(card.number, card.example, free)
            if price is not None and (best is None or price < best[0]):
                best = (price, host.name, address)
        return best

    def _best_of(self, question: Question, hosts: Iterable[Host]) -> Placement | None:
        choices = (self._choice_on(question, host) for host in hosts)
        best = min((choice for choice in choices if choice is not None), default=None)
        return None if best is None else self._placement(question, best[1], best[2])

    def _next_in_turn(self, question: Question, price: Price) -> Placement | None:
        """Of the hosts with this score, the first after the one chosen last; waste decides among its GPUs only."""
        start = 0 if self.last_host is None else bisect.bisect_right(self._names, self.last_host)
        for name in (*self._names[start:], *self._names[:start]):
            choice = self._choice_on(question, self.hosts[name])
            if choice is not None and choice[0][:3] <= price[:3]:
                return self._placement(question, name, choice[2])
        return None

    def _placement(self, question: Question, name: str, address: str) -> Placement:
        host = self.hosts[name]
        if address:
            card = host.cards[address]
            return Placement(name, (question.slice_on(card),))
        fitting = question.fit_on(host.states, host.labels)
        assert fitting is not None
        return Placement(name, fitting[1])


def _hides(host: Host, question: Question) -> bool:
    """Whether the host has room that its rounded state does not show."""
    return host.rounded_mib.get(question.page_kib, 0) < question.memory_mib <= host.room_for(question)


def _rounded(room_mib: int) -> int:
    """Memory in steps of a 32nd to a 16th of it, so that more hosts are equal; what it hides is asked for at last."""
    step = 1 << max(0, room_mib.bit_length() - 5)
    return room_mib // step * step
