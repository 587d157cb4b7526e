# SPDX-License-Identifier: Apache-2.0
"""The answer of create-vm about one VM."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.agent.wire.fabric import FabricPartition
from vgpuctl.agent.wire.steps import Step
from vgpuctl.model.lease import Lease
from vgpuctl.model.promise import PromiseFinding
from vgpuctl.model.vm import Vm
from vgpuctl.scheduler.candidates import Candidate


@dataclass(frozen=True)
class PlacementReason:
    """The reason for a placement. policy: that chose. reservation: whose shares it uses; then nothing is chosen.

    takers, refusing: number of GPUs that take it and that do not, of hosts for a VM without GPU. hosts: of the takers.
    network: the one that leaves it a single host, `acme/front`; null where none does.
    """

    policy: str
    takers: int = 0
    hosts: int = 0
    refusing: int = 0
    reservation: str | None = None
    network: str | None = None


class WriteKind(StrEnum):
    """Kind of an object on the host that belongs to a VM, beside its GPU shares."""

    VOLUME = "volume"
    INTERFACE = "interface"
    DOMAIN = "domain"


@dataclass(frozen=True)
class Write:
    """One object that create-vm would write on the host. name: `POOL/VOLUME`, of the network, or of the domain.

    detail: the size of a volume, the address of an interface; empty where there is nothing to say.
    """

    kind: WriteKind
    name: str
    detail: str = ""


@dataclass(frozen=True)
class CreatedVm:
    """One VM that was created, would be created, or exists already.

    changed: False when the VM existed already. steps, undo, xml: what was or would be done. victims: VMs that were
    or would be preempted. why, writes: of a dry run. findings: of each promise that was looked at before the VM was
    said to run. state: of one that existed, as it was last observed, in words with its age; nobody looks at it now.
    partition: of its GPUs on an NVSwitch fabric, as its host was read before it started.
    """

    vm: Vm
    leases: tuple[Lease, ...]
    changed: bool
    steps: tuple[Step, ...] = ()
    undo: tuple[Step, ...] = ()
    xml: str | None = None
    victims: tuple[Candidate, ...] = ()
    why: PlacementReason | None = None
    writes: tuple[Write, ...] = ()
    state: str | None = None
    findings: tuple[PromiseFinding, ...] = ()
    partition: FabricPartition | None = None
