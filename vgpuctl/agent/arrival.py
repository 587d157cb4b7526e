# SPDX-License-Identifier: Apache-2.0
"""Wait for hardware that appears while the restore runs: cards, their driver, NICs.

systemd starts the unit when udev knows all devices, not when their drivers are bound.
"""

from typing import Optional

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

# Codes of a read or a step while a device, its driver or NVIDIA's library is not there yet.
CODES = (
    ProblemCode.NOT_FOUND,
    ProblemCode.WRONG_DRIVER,
    ProblemCode.NVML_MISSING,
    ProblemCode.NVML_NOT_FOUND,
    ProblemCode.NVML_REFUSED,
)
# udev ends an event that takes longer than 180 s (udevd's event_timeout).
_SETTLE_S = 120
_LIMIT_S, _PAUSE_S = 120.0, 1.0
# Nothing more is expected to appear later than this after the boot.
_BOOT_S = 900.0


class Arrival:
    """The waits of one run: `_LIMIT_S` in all, so that a removed card delays the boot only once.

    has_waited: an earlier run of this boot did, so this one does not.
    """

    def __init__(self, host: Host, *, has_waited: bool) -> None:
        self._host = host
        uptime_s = _uptime_s(host)
        is_over = has_waited or uptime_s is None or uptime_s > _BOOT_S
        self._left_s = 0.0 if is_over else _LIMIT_S
        self.waited_s = 0.0

    def settle(self) -> None:
        """Wait until udev has handled its queue, which does not cover drivers that load on their own. Never raises."""
        if not self._left_s or self._host.find_program("udevadm") is None:
            return
        try:
            self._host.run(["udevadm", "settle", f"--timeout={_SETTLE_S}"], timeout_s=_SETTLE_S + 10.0)
        except Problem:
            return  # the steps say what is missing

    def wait_for(self, code: ProblemCode) -> bool:
        """Wait a moment if a failure with this code may pass. Return whether to try again."""
        if code not in CODES or self._left_s <= 0:
            return False
        self._left_s -= _PAUSE_S
        self.waited_s += _PAUSE_S
        self._host.wait(_PAUSE_S)
        return True


def _uptime_s(host: Host) -> Optional[float]:
    """Seconds since the kernel started, None where it does not say."""
    words = (host.read_optional("/proc/uptime") or "").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return None
