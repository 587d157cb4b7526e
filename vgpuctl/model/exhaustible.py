# SPDX-License-Identifier: Apache-2.0
"""Resources that a fleet can run out of: predictions, findings, checks, metrics and alerts follow from one table.

A new kind is a row here, and its readings in usecases/telemetry/measured_resources.py.
"""

from dataclasses import dataclass

from vgpuctl.model.faults import FaultId
from vgpuctl.model.units import MIB, format_mib

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86_400.0


@dataclass(frozen=True)
class Exhaustible:
    """One kind of what can run out.

    name: in metrics and JSON. fault: the id of its findings. meaning: for docs/advice.md. window_s: the trend rests on
    the readings of this time before now, in steps of step_s. oldest_s: an older last reading tells nothing of now.
    horizon_s: an end that is further away is not told. used_up: from this part on it is (nearly) used up.
    least_growth: the part of the whole that the trend must have gained in the window; less is noise. is_returned: a VM
    that has ended holds nothing of it. is_counted: its amounts are numbers, else bytes.
    """

    name: str
    fault: FaultId
    meaning: str
    window_s: float
    horizon_s: float
    used_up: float
    step_s: float = _MINUTE_S
    oldest_s: float = 5 * _MINUTE_S
    least_growth: float = 0.02
    is_returned: bool = True
    is_counted: bool = False

    def is_used_up(self, used: float, total: float) -> bool:
        """True if (nearly) nothing is left of a whole."""
        return total > 0 and used >= self.used_up * total

    def amount(self, value: float) -> str:
        """Write an amount for people."""
        if self.is_counted:
            return f"{value:.1f}" if 0 < abs(value) < 10 and value != round(value) else f"{value:.0f}"
        return format_mib(round(value / MIB))


FRAMEBUFFER = Exhaustible(
    "framebuffer",
    FaultId.FRAMEBUFFER_RUNS_OUT,
    "The framebuffer of one vGPU.",
    window_s=2 * _HOUR_S,
    horizon_s=_DAY_S,
    used_up=0.95,
)
HOST_MEMORY = Exhaustible(
    "host-memory",
    FaultId.HOST_MEMORY_RUNS_OUT,
    "Memory of a host beside its huge pages; the kernel ends programs, such as QEMU, where none is left.",
    window_s=2 * _HOUR_S,
    horizon_s=_DAY_S,
    used_up=0.97,
)
HUGE_PAGES = Exhaustible(
    "huge-pages",
    FaultId.HUGE_PAGES_RUN_OUT,
    "Huge pages of one size that a host keeps; without a free one the next VM that asks for them does not start.",
    window_s=6 * _HOUR_S,
    horizon_s=3 * _DAY_S,
    used_up=1.0,
)
DISK_POOL = Exhaustible(
    "disk-pool",
    FaultId.DISK_POOL_RUNS_OUT,
    "The file system, or the volume group of LVM, of storage pools; QEMU pauses VMs whose disks cannot grow.",
    window_s=6 * _HOUR_S,
    horizon_s=3 * _DAY_S,
    used_up=0.95,
    least_growth=0.002,
    is_returned=False,
)
LICENCE_SEATS = Exhaustible(
    "licence-seats",
    FaultId.LICENCE_SEATS_RUN_OUT,
    "Seats of a licence pool, as this store counts them; what others take from the licence server is not seen.",
    window_s=14 * _DAY_S,
    horizon_s=30 * _DAY_S,
    used_up=1.0,
    step_s=_HOUR_S,
    oldest_s=2 * _HOUR_S,
    is_counted=True,
)
EXHAUSTIBLE = (FRAMEBUFFER, HOST_MEMORY, HUGE_PAGES, DISK_POOL, LICENCE_SEATS)
OF_RESOURCES = tuple(one for one in EXHAUSTIBLE if one is not FRAMEBUFFER)
"""Those that no single VM has for itself; a finding of one of them names the VMs behind it."""
