# SPDX-License-Identifier: Apache-2.0
"""A case of an alert, for `promtool test rules`: series over minutes, and when the alert must fire and must not."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vgpuctl.model.faults import FaultId
from vgpuctl.model.health import HealthCode


@dataclass(frozen=True)
class AlertCase:
    """Series of one test, one value a minute. faults: which rules of the alert's name must fire, with these labels.

    value: of the expression, as the summary shows it. fires_at, silent_at: minutes.
    """

    alert: str
    text: str
    series: Mapping[str, str]
    faults: tuple[HealthCode | FaultId, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    fires_at: tuple[int, ...] = ()
    silent_at: tuple[int, ...] = ()
    value: str = ""


GPU = {"host": "gpu1", "gpu": "0000:41:00.0"}
SHARE = {**GPU, "tenant": "acme", "vm": "web-1", "share": "0000:41:00.4", "profile": "A40-8Q"}
OTHER = {**SHARE, "vm": "db-1", "share": "0000:41:00.5"}
HOST = {"host": "gpu1"}
KNOWN = {'vgpuctl_gpu_info{host="gpu1",gpu="0000:41:00.0",uuid="GPU-1"}': "1x120"}


def series(name: str, labels: Mapping[str, str], **more: str) -> str:
    written = ",".join(f'{key}="{value}"' for key, value in {**labels, **more}.items())
    return f"{name}{{{written}}}"


def steps(*steps: tuple[float | str, int]) -> str:
    """(value, minutes) one after another, in promtool's notation: `1x9` is ten samples, `_x9` is none for nine."""
    return " ".join(f"_x{minutes}" if value == "_" else f"{value}x{minutes - 1}" for value, minutes in steps)


PULSE = steps((0, 10), (1, 30), (0, 30))
"""A state that lasts from minute 10 to 39."""
DIP = steps((1, 10), (0, 30), (1, 30))


def state(
    alert: str, fault: HealthCode | FaultId, name: str, labels: Mapping[str, str], *, waits: int, **more: str
) -> AlertCase:
    """An alert on a state: it fires while the state lasts, not before its time, and not afterwards."""
    return AlertCase(
        alert,
        f"{name} is 1 for half an hour",
        {series(name, labels, **more): PULSE},
        (fault,),
        {**labels, **more},
        fires_at=(10 + waits, 39),
        silent_at=(9, *((9 + waits,) if waits else ()), 50),
    )
