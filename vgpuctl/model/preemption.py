# SPDX-License-Identifier: Apache-2.0
"""The terms on which a tenant's VMs are preempted, and on which its requests preempt others."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.model.vm import Preemption

USUAL_GRACE_S = 30.0


class Reclaim(StrEnum):
    """Handling of a tenant's VMs on borrowed quota when another tenant asks for its guaranteed share."""

    NEVER = "never"
    STOP = "stop"
    REQUEUE = "requeue"

    def action(self) -> Preemption | None:
        """The state of such a VM afterwards; None if it is never preempted for that reason."""
        return None if self is Reclaim.NEVER else Preemption(self.value)


class PreemptMode(StrEnum):
    """Consent of a tenant's requests to preempt VMs: asked for each time, or given by the operator beforehand."""

    ASK = "ask"
    AUTO = "auto"


@dataclass(frozen=True)
class TenantPolicy:
    """Preemption policy of one tenant, set by the operator.

    grace_s: time between the notice to one of its VMs and the VM's shutdown.
    """

    reclaim: Reclaim = Reclaim.NEVER
    preempt: PreemptMode = PreemptMode.ASK
    grace_s: float = USUAL_GRACE_S


USUAL_POLICY = TenantPolicy()
