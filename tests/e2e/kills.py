# SPDX-License-Identifier: Apache-2.0
"""Commands that are killed right after one of their side effects, and the side effects at which a kill differs.

With VGPUCTL_TESTS_ALL_KILL_POINTS=1 every side effect counts: `make test-kill-points`.
"""

import os
import subprocess
from collections.abc import Sequence
from itertools import pairwise, zip_longest

from tests.e2e.operator import Operator

Command = tuple[str, ...]
KILLED_RUN = ("-m", "tests.e2e.killed_run")


def side_effects(operator: Operator, *command: str) -> list[str]:
    """Run a command to its end. Returns the names of its side effects, in order."""
    done = operator.run("0", *command, program=KILLED_RUN)
    assert done.code == 0, done.err
    return done.err.splitlines()[-1].split()


def kill_points(effects: Sequence[str], *, most: int | None = None) -> list[int]:
    """The numbers, from 1, of the side effects at which a kill leaves something of a kind of its own.

    A kind is a side effect and the one before it: the first of each counts, and so do the first and last side effect.
    most: so many of them, 2 or more, evenly spread.
    """
    if os.environ.get("VGPUCTL_TESTS_ALL_KILL_POINTS"):
        return list(range(1, len(effects) + 1))
    firsts: dict[tuple[str, str], int] = {}
    for number, kind in enumerate(pairwise(["", *effects]), start=1):
        firsts.setdefault(kind, number)
    points = sorted({*firsts.values(), len(effects)})
    if most is None or most >= len(points):
        return points
    return [points[number * (len(points) - 1) // (most - 1)] for number in range(most)]


def paired_points(operator: Operator, making: Command, undoing: Command, **options: int) -> list[tuple[int, int]]:
    """The points of two commands of which the second undoes the first; the shorter list goes on with its last one.

    options: those of `kill_points`.
    """
    made, undone = (kill_points(side_effects(operator, *command), **options) for command in (making, undoing))
    return [(one or made[-1], other or undone[-1]) for one, other in zip_longest(made, undone)]


def kill_after(operator: Operator, point: int | str, *command: str) -> None:
    """Kill a command after a side effect: the n-th, or the first of a name."""
    done = operator.run(str(point), *command, program=KILLED_RUN)
    assert done.code == -9, f"not killed at side effect {point}: {done.code}\n{done.err}"


def stop_after(operator: Operator, point: int | str, *command: str) -> "subprocess.Popen[str]":
    """Start a command that stands still after a side effect, until it gets SIGCONT."""
    process = operator.start(f"stop:{point}", *command, program=KILLED_RUN)
    _pid, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"it ended before side effect {point}"
    return process
