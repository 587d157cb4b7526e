# SPDX-License-Identifier: Apache-2.0
"""The health of GPUs among the doctor's findings, with the code and the remedy of the event and the alert."""

from vgpuctl.agent.wire.health import HostHealth
from vgpuctl.model.health import HealthPolicy
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.sharing.health import findings_of


def health_states(now: HostHealth, policy: HealthPolicy) -> tuple[Finding, ...]:
    """Return the states that last, such as a row that waits for its spare, by GPU.

    Counters and the log give events only. A finding that the policy tolerates is a note.
    """
    return tuple(
        Finding(one.code, Severity.ERROR if policy.forbids(one) else Severity.NOTE, one.device, one.text, one.remedy)
        for gpu in now.gpus
        for one in findings_of(now, gpu.address, now)
    )
