# SPDX-License-Identifier: Apache-2.0
"""Questions to the scheduler and its answers."""

from dataclasses import dataclass
from typing import NamedTuple

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.host_constraints import NO_HOST_CONSTRAINTS, HostConstraints, HostRules
from vgpuctl.model.layout import GpuLayout
from vgpuctl.model.lease import Share
from vgpuctl.model.numa import GuestNuma
from vgpuctl.model.restriction import Restriction


class CellPromise(NamedTuple):
    """The part of one NUMA node that the store's VMs have, running or not.

    shared_vcpus: those that float. pins: the CPU of each pinned vCPU. memory_mib: by page size in KiB, 0 for ordinary
    memory.
    """

    numa_node: int
    shared_vcpus: int = 0
    pins: tuple[int, ...] = ()
    memory_mib: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class HostCapacity:
    """One host as last seen. generation: the store's counter of changes to this host's leases.

    constraints: what the inventory says. groups: (tenant, group) of the VMs there.
    declared: what the layout says of the GPUs; one that no entry matches serves what it can.
    promised: by NUMA node; a host with one node has one entry. restrictions, silence: as in HostRules.
    """

    name: str
    facts: HostFacts
    generation: int = 0
    constraints: HostConstraints = NO_HOST_CONSTRAINTS
    groups: frozenset[tuple[str, str]] = frozenset()
    declared: tuple[GpuLayout, ...] = ()
    promised: tuple[CellPromise, ...] = ()
    restrictions: tuple[Restriction, ...] = ()
    silence: str | None = None

    @property
    def rules(self) -> HostRules:
        """The rules of the host: those of people and of findings."""
        return HostRules(self.name, self.constraints, self.declared, self.restrictions, self.silence)


@dataclass(frozen=True)
class Rejection:
    """Why one GPU (or a whole host, gpu None) cannot take a request.

    code: stable, kebab-case. reason: a sentence with the numbers. remedy: the nearest change that would admit it.
    """

    host: str
    gpu: str | None
    code: str
    reason: str
    remedy: str | None = None


@dataclass(frozen=True)
class Placement:
    """The scheduler's answer: a host and one share per GPU asked for, in the request's order.

    numa: the part of each NUMA node that the VM gets; None for what was placed without asking (a reservation's shares).
    """

    host: str
    shares: tuple[Share, ...]
    rejections: tuple[Rejection, ...] = ()
    numa: GuestNuma | None = None
