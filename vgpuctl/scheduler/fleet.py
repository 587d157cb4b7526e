# SPDX-License-Identifier: Apache-2.0
"""Hosts with everything that is taken on them, indexed by state: a decision does not look at every host.

GPUs in an equal state share one entry (gpu_class, state_index), and so do hosts for a VM with several GPUs. Leases
come and go one by one; the cost of a decision follows the number of states that are new, not the number of hosts.
"""

import bisect
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from itertools import count

from vgpuctl.catalog.vgpu_terms import terms_of
from vgpuctl.model.host_parts import parts_needed
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.numa import NO_FOOTPRINT, Footprint
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.policy import DEFAULT_POLICY, Policy, PolicyName, parse_policy
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.cell_choice import CellReach, has_cells, may_take, takes
from vgpuctl.scheduler.class_index import MOST_REQUEST_CLASSES
from vgpuctl.scheduler.fleet_host import FleetHost
from vgpuctl.scheduler.fleet_index import HOST_ENDS, GpuIndex, HostIndex, HostMember
from vgpuctl.scheduler.gpu_by_facts import read_gpu
from vgpuctl.scheduler.gpu_class import GpuClasses, LeasedGpu
from vgpuctl.scheduler.guest_place import choose_on, numa_on
from vgpuctl.scheduler.performance.measurement import UNLABELLED
from vgpuctl.scheduler.request_class import IndexKey, RequestClass
from vgpuctl.scheduler.scarcity import Model, Scarcity
from vgpuctl.scheduler.scorer import LOSS, NOTHING_MORE, OPENING, FleetView, Price, Scorer
from vgpuctl.scheduler.state_index import StateIndex

_Choice = tuple[Price, str, str]
"""What it costs, the host, and the GPU's address where one share is wanted."""


class Fleet:
    """Hosts by name. Equal hosts, leases and request classes give equal answers, whatever happened before.

    policy, view: what `place` uses unless it is told otherwise.
    """

    def __init__(
        self,
        capacities: Iterable[HostCapacity] = (),
        leases: Iterable[Lease] = (),
        policy: Policy = DEFAULT_POLICY,
        view: FleetView = NOTHING_MORE,
    ) -> None:
        self.hosts: dict[str, FleetHost] = {}
        self.last_host = view.last_host
        self._policy = policy
        self._view = view
        self._names: list[str] = []
        self._workloads = None if view.model is None else dict(view.workloads)
        self._classes = GpuClasses(self._workloads, view.unmeasured)
        self._gpu_indexes: dict[IndexKey, GpuIndex] = {}
        self._host_indexes: dict[IndexKey, HostIndex] = {}
        self._request_classes: dict[Hashable, RequestClass] = {}
        self._class_numbers = count()
        self._policies: Counter[str | None] = Counter()
        self._hosts_with_cells = 0
        self._scarcity = Scarcity()
        self._markets: Counter[tuple[Model, ...]] = Counter()
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

    def learn_workloads(self, workloads: Mapping[str, str]) -> None:
        """Note the workload classes of VMs whose leases come later; those that are known do not change."""
        if self._workloads is not None:
            self._workloads.update(workloads)

    def put(self, capacity: HostCapacity, leases: Iterable[Lease] = ()) -> None:
        """Add a host, or replace its reading and its leases."""
        name = capacity.name
        if name in self.hosts:
            self.remove(name)
        bisect.insort(self._names, name)
        cards, rules = {}, capacity.rules
        for gpu in sorted(capacity.facts.gpus, key=lambda one: one.address):
            busy = self._view.utilisation_percent.get((name, gpu.address), 0.0)
            reading = read_gpu(rules, capacity.facts, gpu, busy_percent=busy)
            cards[gpu.address] = LeasedGpu(reading, self._classes)
        for lease in leases:
            if lease.share.gpu in cards and lease.state.holds_device():
                cards[lease.share.gpu].take(lease)
        host = self.hosts[name] = FleetHost(capacity, cards)
        self._policies[capacity.constraints.policy] += 1
        self._hosts_with_cells += len(host.cells) > 1
        self._markets[host.models] += 1
        self._count_stock(host, cards)
        for group in capacity.groups:
            self._groups.setdefault(group, Counter())[name] += 1
        for gpus in self._gpu_indexes.values():
            gpus.change(host, cards)
        for hosts in self._host_indexes.values():
            hosts.change(host)

    def remove(self, name: str) -> None:
        """Take a host out. Raises KeyError when it is not there."""
        host = self.hosts.pop(name)
        self._policies[host.capacity.constraints.policy] -= 1
        self._hosts_with_cells -= len(host.cells) > 1
        self._markets[host.models] -= 1
        host.stock.leave(self._scarcity)
        for there in self._groups.values():
            del there[name]
        self._names.pop(bisect.bisect_left(self._names, name))
        for gpus in self._gpu_indexes.values():
            gpus.remove(host)
        for hosts in self._host_indexes.values():
            hosts.remove(host)

    def take(
        self,
        host: str,
        leases: Collection[Lease],
        footprint: Footprint = NO_FOOTPRINT,
        group: tuple[str, str] | None = None,
    ) -> None:
        """Count the leases of one VM that was placed, what it takes beside them, and its group: tenant and name."""
        found = self.hosts[host]
        if group is not None:
            self._groups.setdefault(group, Counter())[host] += 1
        for lease in leases:
            found.cards[lease.share.gpu].take(lease)
        self.last_host = host
        self._changed(found, {lease.share.gpu for lease in leases}, footprint, 1)

    def release(
        self,
        host: str,
        leases: Collection[Lease],
        footprint: Footprint = NO_FOOTPRINT,
        group: tuple[str, str] | None = None,
    ) -> None:
        """Forget what `take` counted."""
        found = self.hosts[host]
        if group is not None:
            self._groups[group][host] -= 1
        for lease in leases:
            found.cards[lease.share.gpu].release(lease)
        self._changed(found, {lease.share.gpu for lease in leases}, footprint, -1)

    def place(self, request: VmRequest, policy: Policy | None = None) -> Placement | None:
        """Choose host and GPUs for one VM; None when no host can take it. Nothing is counted as taken yet."""
        request_class = self._request_class(request, policy or self.policy_for(request))
        there = self.hosts_of_group(request)
        if there:
            together = request.constraints.together
            found = self._place_apart(request_class, request, there) if together.is_apart() else None
            if not together.is_apart():
                found = self._best_of(
                    request_class, [self.hosts[name] for name in there if request.host in (None, name)]
                )
            if found is not None or not together.is_preference():
                return found
        return self._place_anywhere(request_class, request.host)

    def place_on(self, request: VmRequest, name: str, gpus: Collection[str]) -> Placement | None:
        """The same on some GPUs of one host, by their addresses. Raises KeyError for a host that is not there."""
        whole = self.hosts[name]
        self.hosts[name] = whole.with_cards(gpus)
        try:
            return self.place(replace(request, host=name))
        finally:
            self.hosts[name] = whole

    def policy_for(self, request: VmRequest) -> Policy:
        """The request's policy, else the one that all hosts name, else the fleet's."""
        if request.constraints.policy is not None:
            return parse_policy(request.constraints.policy)
        named = [name for name, count in self._policies.items() if count]
        return parse_policy(named[0]) if len(named) == 1 and named[0] is not None else self._policy

    def hosts_of_group(self, request: VmRequest) -> list[str]:
        """The hosts that have a VM of the request's group."""
        there = self._groups.get((request.tenant, request.constraints.group or ""))
        return [] if there is None else sorted(name for name, count in there.items() if count > 0)

    def _place_apart(self, request_class: RequestClass, request: VmRequest, there: Collection[str]) -> Placement | None:
        found = self._place_anywhere(request_class, request.host)
        if found is None or found.host not in there:
            return found
        return self._best_of(
            request_class,
            [host for name, host in self.hosts.items() if name not in there and request.host in (None, name)],
        )

    def _place_anywhere(self, request_class: RequestClass, host_name: str | None) -> Placement | None:
        if host_name is not None:
            named = self.hosts.get(host_name)
            return self._best_of(request_class, [] if named is None else [named])
        for reach in self._reaches():
            found = self._choose(request_class.indexes[reach], request_class)
            if found is None:
                hidden = [host for host in self.hosts.values() if _hides(host, request_class, reach)]
                placement = self._best_of(request_class, hidden, (reach,))
            elif request_class.takes_turns:
                placement = self._next_in_turn(request_class, found[1], reach)
            else:
                name, _, address = found[0].partition(HOST_ENDS)
                placement = self._placement(request_class, name, address)
            if placement is not None:
                return placement
        return None

    def _reaches(self) -> tuple[CellReach, ...]:
        """A VM is near its GPUs on any host rather than far from them on the best one."""
        return tuple(CellReach) if self._hosts_with_cells else (CellReach.NEAR,)

    def _choose(self, key: IndexKey, request_class: RequestClass) -> tuple[str, Price] | None:
        """The best member of an index, and its price; several models are compared at the price of each."""
        if not request_class.compares_models:
            return self._choose_of(key, request_class, None)
        markets: Iterable[tuple[Model, ...]] = [one for one, count in self._markets.items() if count]
        if not key.of_hosts:
            markets = [(model,) for model in dict.fromkeys(model for models in markets for model in models)]
        found = ((one, self._choose_of(key, request_class, one)) for one in markets)
        choices = ((self._weighed(best[1], one), best[0]) for one, best in found if best is not None)
        best = min(choices, default=None)
        return None if best is None else (best[1], best[0])

    def _compared(self, request_class: RequestClass, price: Price, models: Iterable[Model]) -> Price:
        return self._weighed(price, models) if request_class.compares_models else price

    def _weighed(self, price: Price, models: Iterable[Model]) -> Price:
        """A price with the loss weighed by how scarce the models are."""
        loss = self._scarcity.weighed(price[LOSS], price[OPENING], models)
        return (*price[:LOSS], loss, *price[LOSS + 1 :])

    def _count_stock(self, host: FleetHost, addresses: Iterable[str]) -> bool:
        """Count what is free of these GPUs. Returns whether the host has another number of untouched ones."""
        if not host.is_open:
            return False
        numbers = [(address, host.cards[address].number) for address in addresses]
        models, stocks = self._classes.models, self._classes.stocks
        return host.stock.count(self._scarcity, [(address, models[one], stocks[one]) for address, one in numbers])

    def _choose_of(
        self, key: IndexKey, request_class: RequestClass, models: tuple[Model, ...] | None
    ) -> tuple[str, Price] | None:
        """The same among the GPUs of one model, or the hosts with GPUs of these; None for all."""
        if not key.of_hosts:
            return self._gpu_index(key).choose(request_class, models)
        index = self._host_index(key)

        def price_of(state: HostMember) -> Price | None:
            name = index.first_of(state)
            if models is not None and self.hosts[name].models != models:
                return None
            return self._price_of_host(request_class, state, name, key.reach)

        found = index.choose((request_class.number, models), price_of)
        if found is None:
            return None
        price = self._price_of_host(request_class, found[1], found[0], key.reach)
        assert price is not None
        return found[0], price

    def _request_class(self, request: VmRequest, policy: Policy) -> RequestClass:
        constraints = request.constraints
        memory = (request.memory_mib, request.hugepages_kib)
        workload = request.workload if PolicyName.PREDICTED in policy.names else None
        shown = request.display.vgpu if request.display.shows_vgpu else None
        labels = (constraints.required, constraints.preferred, constraints.partition)
        parts = parts_needed(request)
        key = (request.gpus, request.vcpus, memory, policy, labels, workload, shown, parts, terms_of(request))
        found = self._request_classes.get(key)
        if found is None:
            if len(self._request_classes) >= MOST_REQUEST_CLASSES:
                self._request_classes.clear()
            number = next(self._class_numbers)
            found = self._request_classes[key] = RequestClass(number, request, self._scorer(request, policy))
        return found

    def _scorer(self, request: VmRequest, policy: Policy) -> Scorer:
        return Scorer(policy, request.constraints.preferred, self._view.model, request.workload or UNLABELLED)

    def _gpu_index(self, key: IndexKey) -> GpuIndex:
        if key not in self._gpu_indexes:
            self._gpu_indexes[key] = GpuIndex(key, self.hosts, self._classes)
        return self._gpu_indexes[key]

    def _host_index(self, key: IndexKey) -> StateIndex[HostMember, Price]:
        if key not in self._host_indexes:
            self._host_indexes[key] = HostIndex(key, self.hosts)
        return self._host_indexes[key].current()

    def _changed(self, host: FleetHost, addresses: Collection[str], footprint: Footprint, times: int) -> None:
        host.promise(footprint, times)
        addresses = host.weigh_fabric().union(addresses)
        has_other_untouched = self._count_stock(host, addresses)
        for key, gpus in self._gpu_indexes.items():
            gpus.change(host, addresses)
            if has_other_untouched and key.with_untouched:
                gpus.change(host, host.stock.untouched())
        for hosts in self._host_indexes.values():
            hosts.change(host)

    def _price_of_host(
        self, request_class: RequestClass, state: HostMember, name: str, reach: CellReach
    ) -> Price | None:
        rooms, *_ = state
        host = self.hosts[name]
        if not rooms or not may_take(request_class.need, rooms):
            return None
        if not request_class.may_fit([(card.number, card.example) for card in host.cards.values()]):
            return None
        fitting = request_class.fit_on(host.states, host.labels, rooms, reach)
        return None if fitting is None else fitting.price

    def _choice_on(self, request_class: RequestClass, host: FleetHost, reach: CellReach) -> _Choice | None:
        """The best on one host, by looking at all of it."""
        rooms = host.rooms_for(request_class)
        if not rooms or not may_take(request_class.need, rooms):
            return None
        if len(request_class.share_requests) != 1:
            fitting = request_class.fit_on(host.states, host.labels, rooms, reach)
            return (
                None if fitting is None else (self._compared(request_class, fitting.price, host.models), host.name, "")
            )
        free = host.free if request_class.index.with_loads else 0.0
        best: _Choice | None = None
        for address, card in host.cards.items():
            if not has_cells(request_class.need, card.state.numa_nodes, rooms, reach):
                continue
            beside = float(host.stock.beside(address)) if request_class.index.with_untouched else free
            price = request_class.price_on(card.number, card.example, beside)
            price = None if price is None else self._compared(request_class, price, (card.model,))
            if price is not None and (best is None or price < best[0]):
                best = (price, host.name, address)
        return best

    def _best_of(
        self,
        request_class: RequestClass,
        hosts: Collection[FleetHost],
        reaches: Collection[CellReach] = tuple(CellReach),
    ) -> Placement | None:
        for reach in reaches:
            choices = (self._choice_on(request_class, host, reach) for host in hosts)
            best = min((choice for choice in choices if choice is not None), default=None)
            if best is not None:
                return self._placement(request_class, best[1], best[2])
        return None

    def _next_in_turn(self, request_class: RequestClass, price: Price, reach: CellReach) -> Placement | None:
        """Of the hosts with this score, the first after the one chosen last; waste decides among its GPUs only."""
        start = 0 if self.last_host is None else bisect.bisect_right(self._names, self.last_host)
        for name in (*self._names[start:], *self._names[:start]):
            choice = self._choice_on(request_class, self.hosts[name], reach)
            if choice is not None and choice[0][:3] <= price[:3]:
                return self._placement(request_class, name, choice[2])
        return None

    def _placement(self, request_class: RequestClass, name: str, address: str) -> Placement:
        host = self.hosts[name]
        rooms = host.rooms_for(request_class)
        if address:
            shares: tuple[Share, ...] = (request_class.share_on(host.cards[address]),)
            if len(rooms) == 1:
                return Placement(name, shares)
            cells = choose_on(request_class.need, [one.numa_node for one in shares], rooms)
        else:
            fitting = next(
                found
                for reach in CellReach
                if (found := request_class.fit_on(host.states, host.labels, rooms, reach)) is not None
            )
            shares, cells = fitting.shares, fitting.cells
        assert cells is not None
        gpu_numa_nodes = [one.numa_node for one in shares]
        return Placement(
            name, shares, numa=numa_on(host.cells, cells, gpu_numa_nodes, is_pinned=request_class.has_gpus)
        )


def _hides(host: FleetHost, request_class: RequestClass, reach: CellReach) -> bool:
    """True if the host has room that its rounded state does not show."""
    need, exact = request_class.need, host.rooms_for(request_class)
    rounded = host.rounded(request_class.page_kib, has_gpus=request_class.has_gpus, parts=request_class.parts)
    if not exact:
        return False
    if reach is CellReach.NEAR and len(exact) > 1:
        rooms = zip(exact, rounded, strict=True)
        return may_take(need, exact) and any(not takes(need, shown) and takes(need, one) for one, shown in rooms)
    return not has_cells(need, (), rounded, reach) and has_cells(need, (), exact, reach)
