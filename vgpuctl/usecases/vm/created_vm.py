# SPDX-License-Identifier: Apache-2.0
"""The answer of create-vm about one VM."""

from dataclasses import dataclass

from vgpuctl.agent.wire.steps import Step
from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import Vm
from vgpuctl.scheduler.candidates import Candidate


@dataclass(frozen=True)
class CreatedVm:
    """One VM that was created, would be created, or exists already.

    changed: False when the VM existed already. steps, undo, xml: what was or would be done. victims: VMs that were
    or would be preempted; a dry run that needs some has no steps, since the host is not free yet.
    """

    vm: Vm
    leases: tuple[Lease, ...]
    changed: bool
    steps: tuple[Step, ...] = ()
    undo: tuple[Step, ...] = ()
    xml: str | None = None
    victims: tuple[Candidate, ...] = ()
