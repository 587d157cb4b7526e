# SPDX-License-Identifier: Apache-2.0
"""The fleet as it is, with what placing and counting work out about it once.

A replay changes one or two hosts. The answers about the other hosts are kept.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

from vgpuctl.catalog import read_gpu_request
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.capacity import count_more
from vgpuctl.scheduler.fleet import Fleet

HostLayout = tuple[HostCapacity, tuple[Lease, ...]]
"""One host and its leases."""


class ReplayedFleet:
    """Hosts with their leases, by name."""

    def __init__(self, capacities: Iterable[HostCapacity], leases: Iterable[Lease]) -> None:
        by_host: dict[str, list[Lease]] = {}
        for lease in leases:
            by_host.setdefault(lease.host, []).append(lease)
        self.hosts: dict[str, HostLayout] = {one.name: (one, tuple(by_host.get(one.name, ()))) for one in capacities}
        self.starting: list[str] | None = None
        """The waiting VMs that would start as it is; worked out by the first who asks."""
        self._counts: dict[str, Counter[str]] = {}
        self._parts: dict[tuple[str, tuple[str, ...], str], int] = {}

    @cached_property
    def fleet(self) -> Fleet:
        """The fleet to place on. Who changes a host of it puts it back."""
        return Fleet((one for one, _leases in self.hosts.values()), self.leases())

    def leases(self) -> Iterator[Lease]:
        """Every lease on a host whose facts are known."""
        for _capacity, leases in self.hosts.values():
            yield from leases

    def count(self, profile: str) -> Counter[str]:
        """How many more VMs of a profile fit, by host."""
        if profile not in self._counts:
            capacities = [one for one, _leases in self.hosts.values()]
            self._counts[profile] = count_more(small_vm(profile), capacities, self.leases())
        return self._counts[profile]

    def count_on(self, host: HostLayout, profile: str) -> int:
        """How many more VMs of a profile fit on a part of a host as it is; kept for the next one who asks."""
        capacity, _leases = host
        key = (capacity.name, tuple(gpu.address for gpu in capacity.facts.gpus), profile)
        if key not in self._parts:
            self._parts[key] = count_on(host, profile)
        return self._parts[key]

    @contextmanager
    def changed(self, hosts: Mapping[str, HostLayout]) -> Iterator[Fleet]:
        """The fleet with other layouts of some hosts, for the length of the block."""
        for capacity, leases in hosts.values():
            self.fleet.put(capacity, leases)
        try:
            yield self.fleet
        finally:
            self.restore(hosts)

    def restore(self, names: Iterable[str]) -> None:
        """Put hosts of the fleet back as they are."""
        for name in names:
            self.fleet.put(*self.hosts[name])


def count_on(host: HostLayout, profile: str) -> int:
    """How many more VMs of a profile fit on one host."""
    capacity, leases = host
    return count_more(small_vm(profile), [capacity], leases).total()


def only(host: HostLayout, gpus: Collection[str]) -> HostLayout:
    """A host with some of its GPUs alone."""
    capacity, leases = host
    cards = tuple(gpu for gpu in capacity.facts.gpus if gpu.address in gpus)
    own = tuple(one for one in leases if one.share.gpu in gpus)
    return replace(capacity, facts=replace(capacity.facts, gpus=cards)), own


def small_vm(what: str) -> VmRequest:
    """A VM that is limited by its GPU alone."""
    return VmRequest("more", "", (read_gpu_request(what),), vcpus=1, memory_mib=64)
