# SPDX-License-Identifier: Apache-2.0
"""Xids that a scenario plays: a curve `xid/CODE` of a GPU counts them, and the kernel logs each one when it is due."""

from vgpuctl_lab.simulated.machine import curves as played
from vgpuctl_lab.simulated.machine.state import MachineFolder, is_nvidia

# Of one code between two looks: a flood of more is cut, as the kernel's ring buffer would.
_MOST_AT_ONCE = 20_000


def log_due(machine: MachineFolder) -> None:
    """Log the Xids that are due by now and not logged yet."""
    curves = played.read(machine.root)
    if not any(measure.startswith("xid/") for _, measure in curves.curves):
        return
    now = machine.state().now()
    lines: list[str] = []
    done: dict[str, int] = {}
    with machine.change() as state:
        for card in machine.shape.cards:
            if not is_nvidia(card):
                continue
            place = card.address.rpartition(".")[0]
            for code, count in curves.labelled(f"gpu:{card.address}", "xid", now):
                key = f"{curves.started_at:.3f} {card.address} {code}"
                due = int(count) - state.played_xids.get(key, 0)
                if due > 0:
                    done[key] = int(count)
                    line = f"NVRM: Xid (PCI:{place}): {code}, pid='<unknown>', name=<unknown>, Ch 00000000"
                    lines += [line] * min(due, _MOST_AT_ONCE)
        state.played_xids.update(done)
        if lines:
            machine.log(*lines)
