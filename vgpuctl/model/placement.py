# SPDX-License-Identifier: Apache-2.0
"""What the scheduler is asked with, and what it answers."""

from dataclasses import dataclass

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.layout import GpuLayout
from vgpuctl.model.lease import Slice
from vgpuctl.model.traits import NO_TRAITS, HostTraits


@dataclass(frozen=True)
class HostCapacity:
    """One host as last seen. generation: the store's counter of changes to this host's leases.

    promised_memory_mib: what the store's VMs on the host have, whether or not they ran when it was read.
    promised_hugepages_mib: the same of memory in huge pages, by their size in KiB.
    traits: what the inventory says. groups: (tenant, group) of the VMs there.
    declared: what the layout says of the GPUs; one that no entry matches serves what it can.
    """

    name: str
    facts: HostFacts
    generation: int = 0
    promised_memory_mib: int = 0
    traits: HostTraits = NO_TRAITS
    groups: frozenset[tuple[str, str]] = frozenset()
    promised_hugepages_mib: tuple[tuple[int, int], ...] = ()
    declared: tuple[GpuLayout, ...] = ()


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
    """The scheduler's answer: a host and one slice per GPU asked for, in the request's order."""

    host: str
    slices: tuple[Slice, ...]
    rejections: tuple[Rejection, ...] = ()
