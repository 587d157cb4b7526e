# SPDX-License-Identifier: Apache-2.0
"""Runs on an emulated host: the kernel module logs the Xids of the scenario that is played, each when it is due.

`lab play` puts this file there beside curves.py and starts it. It ends with the scenario's last Xid, when another
scenario takes its place, and with the host.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from vgpuctl_lab.simulated.machine.curves import Curve, Curves, read

_CONTROL = Path("/proc/vgpulab/control")
_ROOT = Path("/")
_PAUSE_S = 1.0
# Of one code between two looks: a flood of more is cut, as the kernel's ring buffer would.
_MOST_AT_ONCE = 1000
_ANSWER_AT_MOST = 4096


def play() -> None:
    """Log the Xids of the scenario that is played now, until its last one."""
    played = read(_ROOT)
    last_s = max((curve.repeat_s or curve.points[-1][0] for _, _, curve in _xids(played)), default=0.0)
    logged: dict[tuple[str, str], int] = {}
    while read(_ROOT).started_at == played.started_at:
        elapsed_s = time.time() - played.started_at
        for address, code, curve in _xids(played):
            count = int(curve.value(elapsed_s))
            due = count - logged.get((address, code), 0)
            if due > 0:
                logged[address, code] = count
                for _ in range(min(due, _MOST_AT_ONCE)):
                    _log(address, code)
        if elapsed_s >= last_s:
            return
        time.sleep(_PAUSE_S)


def _xids(played: Curves) -> Iterator[tuple[str, str, Curve]]:
    for (target, measure), curve in played.curves.items():
        kind, _, address = target.partition(":")
        name, _, code = measure.partition("/")
        if (kind, name) == ("gpu", "xid"):
            yield address, code, curve


def _log(address: str, code: str) -> None:
    with _CONTROL.open("r+b", buffering=0) as control:
        control.write(f"fault {address} xid {code}".encode())
        answer = control.read(_ANSWER_AT_MOST)
    if not answer.startswith(b"ok"):
        raise OSError(f"{_CONTROL} does not take Xid {code} of {address}: {answer.decode(errors='replace')}")


if __name__ == "__main__":
    play()
