# SPDX-License-Identifier: Apache-2.0
"""A history of readings of two VMs on one GPU: the first works alone, then beside the second."""

import time
from pathlib import Path

from vgpuctl.telemetry.history import History, MeasuredValue, Subject

_MINUTES = 70
_ALONE_MINUTES = 30


def record_neighbours(path: Path, tenant: str, gpu: tuple[str, str], profile: str, vms: tuple[str, str]) -> None:
    """Write readings of more than an hour: the first VM is slower while the second one works. gpu: host, address."""
    begin = time.time() // 60 * 60 - (_MINUTES + 10) * 60
    first, second = (Subject("vgpu", gpu[0], name, gpu[1], tenant, name, profile) for name in vms)
    with History(path) as history:
        for minute in range(_MINUTES):
            is_alone = minute < _ALONE_MINUTES
            values = [MeasuredValue(first, "utilization_ratio", 0.9 if is_alone else 0.6)]
            if not is_alone:
                values.append(MeasuredValue(second, "utilization_ratio", 0.3))
            history.add(begin + 60 * minute, values)
