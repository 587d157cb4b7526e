# SPDX-License-Identifier: Apache-2.0
"""Facts for placing that only the inventory can have: labels, quarantine, maintenance of hosts and GPUs."""

from dataclasses import dataclass

from vgpuctl.model.constraints import Label
from vgpuctl.model.layout import GpuLayout, GpuMatch
from vgpuctl.model.restriction import Restriction

ALL_GPUS = GpuMatch()


@dataclass(frozen=True)
class GpuConstraints:
    """Of the GPUs that match. quarantine: why they take no new VM. speed: against the fastest of the fleet, 0 to 1."""

    match: GpuMatch = ALL_GPUS
    labels: frozenset[Label] = frozenset()
    quarantine: str | None = None
    speed: float | None = None


@dataclass(frozen=True)
class CpuRatio:
    """How many vCPUs are promised for each CPU. pinned: of VMs with CPUs of their own; None when no VM gets any.

    shared: of the others, which float over the CPUs that nobody is pinned to.
    """

    pinned: int | None = 1
    shared: int = 4


DEFAULT_CPU_RATIO = CpuRatio()


@dataclass(frozen=True)
class HostConstraints:
    """Of one host. maintenance: why it takes no new VM. policy: for VMs that name none, as `parse_policy` reads it.

    labels: of the host and of each of its GPUs. gpus: narrower ones add to wider ones.
    """

    labels: frozenset[Label] = frozenset()
    maintenance: str | None = None
    policy: str | None = None
    gpus: tuple[GpuConstraints, ...] = ()
    cpu_ratio: CpuRatio = DEFAULT_CPU_RATIO


NO_HOST_CONSTRAINTS = HostConstraints()


@dataclass(frozen=True)
class HostRules:
    """Everything that people and findings say of one host beside its facts.

    constraints: of the inventory. declared: the entries of its layout; a GPU that no entry matches serves what it can.
    restrictions: of the store, about this host and about cards that are or were in it. silence: why it gives no answer.
    """

    host: str
    constraints: HostConstraints = NO_HOST_CONSTRAINTS
    declared: tuple[GpuLayout, ...] = ()
    restrictions: tuple[Restriction, ...] = ()
    silence: str | None = None


NO_RULES = HostRules("")

NO_GPU_CONSTRAINTS = GpuConstraints()
