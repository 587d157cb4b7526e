# SPDX-License-Identifier: Apache-2.0
"""The health of GPUs among the doctor's findings, with the code and the remedy of the event and the alert."""

from collections.abc import Iterator, Sequence

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.health import HostHealth
from vgpuctl.model.health import HealthCode, HealthFinding, HealthPolicy
from vgpuctl.model.restriction import Restriction
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.sharing.health import conditions_of, finding


def health_states(
    now: HostHealth, policy: HealthPolicy, host: str, gpus: Sequence[Gpu], restrictions: Sequence[Restriction]
) -> tuple[Finding, ...]:
    """Return the states that last, such as a row that waits for its spare, and what keeps GPUs in quarantine.

    Other counters and lines of the log give events only. A state that the policy tolerates is a note.
    restrictions: of the whole fleet, with those that this reading has set.
    """
    closed = {(one.device, one.finding) for one in restrictions if one.host == host}
    return tuple(
        Finding(
            one.code,
            Severity.ERROR if policy.forbids(one) or (one.device, one.code) in closed else Severity.NOTE,
            one.device,
            one.text,
            one.remedy,
        )
        for one in _conditions(now, host, gpus, restrictions)
    )


def _conditions(
    now: HostHealth, host: str, gpus: Sequence[Gpu], restrictions: Sequence[Restriction]
) -> Iterator[HealthFinding]:
    for gpu in gpus:
        yield from conditions_of(now, host, gpu, restrictions)
    present = {gpu.address for gpu in gpus}
    for one in restrictions:
        if (one.host, one.finding) == (host, HealthCode.GPU_MISSING) and one.device not in present:
            yield finding(HealthCode.GPU_MISSING, one.device, one.reason)
