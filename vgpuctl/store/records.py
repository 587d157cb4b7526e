# SPDX-License-Identifier: Apache-2.0
"""Rows of the store that have no value of their own in vgpuctl.model."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from vgpuctl.model.preemption import USUAL_POLICY, TenantPolicy
from vgpuctl.store import codec

if TYPE_CHECKING:
    from vgpuctl.agent.wire.facts import HostFacts


@dataclass(frozen=True)
class Tenant:
    """One tenant. created_at: seconds since the epoch, UTC. guest_probe: it lets the operator ask inside its guests."""

    name: str
    created_at: float
    policy: TenantPolicy = USUAL_POLICY
    guest_probe: bool = False


@dataclass(frozen=True)
class CachedFacts:
    """A reading of a host at `read_at` (seconds since the epoch, UTC), decoded on the first use of `facts`.

    generation: the counter of changes to the host's leases, to be handed to `reserve`.
    """

    host: str
    read_at: float
    generation: int
    encoded: str = field(repr=False)
    reader: codec.FactsReader = field(repr=False, compare=False)

    @cached_property
    def facts(self) -> "HostFacts":
        """The facts. Raises StoreUnusable when the row is damaged."""
        return self.reader.read(self.host, self.encoded)


@dataclass(frozen=True)
class Operation:
    """The intent of one running command, and the process that runs it.

    detail: free text of the command (JSON where it has structure). machine: the machine id of the operator's machine,
    empty where it has none. process_start: tells two processes with the same pid apart, empty where unknown.
    """

    id: int
    kind: str
    subject: str
    detail: str
    pid: int
    hostname: str
    machine: str
    process_start: str
    begun_at: float
